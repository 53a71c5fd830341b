"""Real ranks that execute one plan after another, and are started anew after one that crashes or hangs.

As a script it is the ranks: forks of one process that has imported everything, each with a socket to whoever asks.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
LENGTH = struct.Struct("!Q")


@dataclass
class Ran:
    """What became of a plan: `fault` in words, or values of all buffers and sources of receives on each rank."""

    fault: str
    values: list[dict[str, Any]]
    arrivals: dict[tuple[int, int, str], int]


class Pool:
    """So many real ranks."""

    def __init__(self, ranks: int):
        self.ranks = ranks
        self.parent: subprocess.Popen[bytes] | None = None
        self.sockets: list[socket.socket] = []
        self.log: IO[bytes] | None = None

    def run(self, plan: str, turns: int, fixed: bool, limit_seconds: float) -> Ran:
        """Execute a plan (JSON) for so many turns; `fixed`: gradients do not depend on parameters."""
        if self.parent is None:
            self._start()
        for each in self.sockets:
            _write(each, (plan, turns, fixed))
        until = time.monotonic() + limit_seconds
        answers: dict[int, Any] = {}
        with selectors.DefaultSelector() as selector:
            for rank, each in enumerate(self.sockets):
                selector.register(each, selectors.EVENT_READ, rank)
            while len(answers) < self.ranks and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    answers[key.data] = _read(self.sockets[key.data])
                    selector.unregister(key.fileobj)
                if any(answer is None or isinstance(answer, str) for answer in answers.values()):
                    break  # the others may wait for it for ever
        faults = [f"rank {rank}: {a or 'ended'}" for rank, a in sorted(answers.items()) if not isinstance(a, tuple)]
        if len(answers) < self.ranks and not faults:
            waiting = sorted(set(range(self.ranks)) - answers.keys())
            faults = [f"rank(s) {waiting} did not end within {limit_seconds:g} s"]
        if faults:
            assert self.log is not None
            self.log.seek(0)
            log = self.log.read()[-2000:].decode(errors="replace")
            self.close()
            return Ran("; ".join(faults) + (f"\n{log}" if "ended" in faults[0] else ""), [], {})
        arrivals = {key: source for _, sources in answers.values() for key, source in sources.items()}
        return Ran("", [answers[rank][0] for rank in range(self.ranks)], arrivals)

    def _start(self) -> None:
        ours, theirs = zip(*(socket.socketpair() for _ in range(self.ranks)), strict=True)
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        inherited = [*theirs, listener]
        numbers = [str(each.fileno()) for each in inherited]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  until the ranks are closed
        folders = [str(HERE.parent), str(HERE.parent / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(listener.getsockname()[1]),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "GRADSYNC_LISTEN_FD": numbers[-1],
            "PYTHONPATH": os.pathsep.join(folders),
        }
        self.parent = subprocess.Popen(
            [sys.executable, __file__, *numbers[:-1]],
            env=environment,
            pass_fds=[each.fileno() for each in inherited],
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        for each in inherited:
            each.close()
        self.sockets = list(ours)

    def close(self) -> None:
        """End the ranks."""
        if self.parent is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.parent.pid, signal.SIGKILL)
            self.parent.wait()
        for each in (*self.sockets, *([self.log] if self.log else [])):
            each.close()
        self.parent, self.sockets, self.log = None, [], None


def _write(to: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    with suppress(BrokenPipeError, ConnectionResetError):  # reading its answer tells that a rank has ended
        to.sendall(LENGTH.pack(len(data)) + data)


def _read(source: socket.socket) -> Any:
    """The next message; None if the other end has gone."""
    try:
        head = _exactly(source, LENGTH.size)
        return None if head is None else pickle.loads(_exactly(source, LENGTH.unpack(head)[0]) or b"N.")
    except (ConnectionResetError, pickle.UnpicklingError):
        return None


def _exactly(source: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


def ranks(numbers: list[str]) -> None:
    """Start the ranks, which end with this process."""
    from changed_plans import judge  # noqa: F401  with torch: before the ranks part ways

    listens = int(os.environ["GRADSYNC_LISTEN_FD"])
    for rank, number in enumerate(numbers):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            if rank:
                del os.environ["GRADSYNC_LISTEN_FD"]
                os.close(listens)
            serve(int(number))
            os._exit(0)
    os.close(listens)
    for number in numbers:
        os.close(int(number))
    os.wait()  # the first that ends


def serve(number: int) -> None:
    """Execute the plans that are requested, one after another."""
    from changed_plans import judge
    from gradsync.runtime.group import Groups, process_group

    connection = socket.socket(fileno=number)
    with process_group(60.0) as (rank, _):
        groups = Groups()
        while (request := _read(connection)) is not None:
            try:
                answer: Any = judge.executed(*request, rank, groups)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            _write(connection, answer)


if __name__ == "__main__":
    ranks(sys.argv[1:])
