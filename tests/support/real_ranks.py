"""Runs a program of `rank_programs/` on real ranks, each a process, and brings back what each returned.

The ranks are forks of one process that has imported everything: importing torch takes seconds of a core, once a launch.
As a script it is one rank: the arguments are the program's name, the folder for its result and the device.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from waiting import HANGS_SECONDS

TESTS = Path(__file__).resolve().parents[1]


def run_on_ranks(program: str, ranks: int, folder: Path, device: str = "cpu") -> list[Any]:
    """What `program(rank, ranks)` returned on each rank; fails with the output of the rank that failed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)  # rank 0 takes it over: nobody else gets the port
    listens, port = str(listener.fileno()), str(listener.getsockname()[1])
    environment = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "GRADSYNC_LISTEN_FD": listens,  # of rank 0 alone
    }
    parent = subprocess.Popen(
        [sys.executable, __file__, program, str(folder), device, str(ranks)],
        env=environment,
        pass_fds=(listener.fileno(),),
        start_new_session=True,
    )
    listener.close()
    try:
        parent.wait(HANGS_SECONDS)
    except subprocess.TimeoutExpired:
        late = [rank for rank in range(ranks) if not (folder / f"rank{rank}.pickle").exists()]
        raise AssertionError(f"{program}: rank(s) {late} hang:\n{_said(folder, late)}") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)  # whoever is left
        parent.wait()
    failed = [rank for rank in range(ranks) if not (folder / f"rank{rank}.pickle").exists()]
    assert parent.returncode == 0, f"{program}: rank(s) {failed} failed:\n{_said(folder, failed)}"
    return [pickle.loads((folder / f"rank{rank}.pickle").read_bytes()) for rank in range(ranks)]


def _said(folder: Path, ranks: list[int]) -> str:
    return "\n".join(
        (folder / f"rank{rank}.log").read_text() for rank in ranks if (folder / f"rank{rank}.log").exists()
    )


def fork(program: str, folder: str, device: str, ranks: int) -> None:
    """Start the ranks; the first that fails ends this process, and with it all of them."""
    import rank_programs  # noqa: F401  before the ranks part ways

    listens = int(os.environ["GRADSYNC_LISTEN_FD"])
    number = {}
    for rank in range(ranks):
        number[child := os.fork()] = rank
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            if rank:
                del os.environ["GRADSYNC_LISTEN_FD"]
                os.close(listens)
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
    if len(sys.argv) == 5:
        fork(*sys.argv[1:4], int(sys.argv[4]))
    else:
        main(*sys.argv[1:])
