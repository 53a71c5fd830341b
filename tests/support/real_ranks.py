"""Runs a program of `rank_programs/` on real ranks, each a process, and brings back what each returned.

Importing torch and the programs takes seconds of a core. One process does it for all launches of a test run, and each
launch is a fork of it, whose forks are the ranks.

As a script it is that process: the argument is the socket on which it is asked. With a program's name and the folder
for its result, it is one rank, or becomes the ranks of a launch.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradsync.runtime.forking import become_ranks
from waiting import HANGS_SECONDS

TESTS = Path(__file__).resolve().parents[1]
MOST_BYTES = 1 << 16  # of a request, or of an answer


def run_on_ranks(program: str, ranks: int, folder: Path, device: str = "cpu") -> list[Any]:
    """What `program(rank, ranks)` returned on each rank; fails with the output of the rank that failed."""
    launches, _ = _launches()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)  # rank 0 takes it over: nobody else gets the port
    environment = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(listener.getsockname()[1]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    socket.send_fds(launches, [pickle.dumps((program, str(folder), device, ranks, environment))], [listener.fileno()])
    listener.close()
    answer = launches.recv(MOST_BYTES)
    assert answer, "the process that starts ranks has ended: see above"
    leader = pickle.loads(answer)
    try:
        launches.settimeout(HANGS_SECONDS)
        error = pickle.loads(launches.recv(MOST_BYTES))
    except TimeoutError:
        late = [rank for rank in range(ranks) if not (folder / f"rank{rank}.pickle").exists()]
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        launches.settimeout(None)
        launches.recv(MOST_BYTES)  # it has ended
        raise AssertionError(f"{program}: rank(s) {late} hang:\n{_said(folder, late)}") from None
    finally:
        launches.settimeout(None)
    failed = [rank for rank in range(ranks) if not (folder / f"rank{rank}.pickle").exists()]
    assert not error, f"{program}: rank(s) {failed} failed: {error}\n{_said(folder, failed)}"
    return [pickle.loads((folder / f"rank{rank}.pickle").read_bytes()) for rank in range(ranks)]


def _said(folder: Path, ranks: list[int]) -> str:
    return "\n".join(
        (folder / f"rank{rank}.log").read_text() for rank in ranks if (folder / f"rank{rank}.log").exists()
    )


@functools.cache
def _launches() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The way to the process of which launches are forks, and that process; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, str(theirs.fileno())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, pass_fds=(theirs.fileno(),), start_new_session=True)
    theirs.close()
    return ours, process


def serve(number: int) -> None:
    """Launch what is requested, one after another: answers with the process group, then with what went wrong."""
    import rank_programs  # noqa: F401  before launches part ways

    requests = socket.socket(fileno=number)
    while True:
        request, passed, *_ = socket.recv_fds(requests, MOST_BYTES, 1)
        if not request:
            return
        (listens,) = passed
        program, folder, device, ranks, environment = pickle.loads(request)
        if (leader := os.fork()) == 0:
            os.setsid()
            requests.close()
            os.environ |= environment
            return fork(program, folder, device, ranks, listens)
        os.close(listens)
        requests.send(pickle.dumps(leader))
        _, status = os.waitpid(leader, 0)
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)  # whoever is left
        requests.send(pickle.dumps(f"ended with {os.waitstatus_to_exitcode(status)}" if status else ""))


def fork(program: str, folder: str, device: str, ranks: int, listens: int) -> None:
    """Start the ranks; the first that fails ends this process, and with it all of them."""
    number = {}
    for rank in range(ranks):
        number[child := os.fork()] = rank
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            if rank:
                os.close(listens)
            else:
                os.environ["GRADSYNC_LISTEN_FD"] = str(listens)
            with open(Path(folder, f"rank{rank}.log"), "wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            return main(program, folder, device)
    os.close(listens)
    for _ in range(ranks):
        child, status = os.wait()
        if status:
            raise SystemExit(f"{program}: rank {number[child]} ended first, with {os.waitstatus_to_exitcode(status)}")


def main(program: str, folder: str, device: str = "cpu") -> None:
    import rank_programs
    from gradsync.runtime.group import process_group

    with process_group(HANGS_SECONDS, device) as (rank, ranks):
        result = getattr(rank_programs, program)(rank, ranks)
    Path(folder, f"rank{rank}.pickle").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    sys.path.insert(1, str(TESTS))  # `launch` starts it without the tests on the path
    if len(sys.argv) == 2:
        serve(int(sys.argv[1]))
    else:
        become_ranks()
        main(*sys.argv[1:])
