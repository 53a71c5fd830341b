"""Runs a function of `rank_programs.py` on real ranks, each a process, and brings back what each returned.

As a script it is one such rank: the arguments are the function's name, the folder for its result and the device.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def run_on_ranks(
    program: str, ranks: int, folder: Path, timeout_seconds: float = 150.0, device: str = "cpu"
) -> list[Any]:
    """What `program(rank, ranks)` returned on each rank; fails with the output of the rank that failed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)  # rank 0 takes it over: nobody else gets the port
    children = []
    try:
        for rank in range(ranks):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(listener.getsockname()[1]),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
            }
            if rank == 0:
                environment["GRADSYNC_LISTEN_FD"] = str(listener.fileno())
            with open(folder / f"rank{rank}.log", "wb") as log:
                children.append(
                    subprocess.Popen(
                        [sys.executable, __file__, program, str(folder), device],
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        pass_fds=(listener.fileno(),) if rank == 0 else (),
                    )
                )
        listener.close()
        deadline = time.monotonic() + timeout_seconds
        while any(child.poll() is None for child in children):
            failed = [rank for rank, child in enumerate(children) if child.poll()]
            late = time.monotonic() > deadline
            if failed or late:
                rank = failed[0] if failed else next(r for r, child in enumerate(children) if child.poll() is None)
                how = f"ended with status {children[rank].returncode}" if failed else "did not end in time"
                raise AssertionError(f"{program}: rank {rank} {how}:\n{(folder / f'rank{rank}.log').read_text()}")
            time.sleep(0.05)
    finally:
        listener.close()
        for child in children:
            child.kill()
            child.wait()
    for rank, child in enumerate(children):
        assert child.returncode == 0, f"{program}: rank {rank}:\n{(folder / f'rank{rank}.log').read_text()}"
    return [pickle.loads((folder / f"rank{rank}.pickle").read_bytes()) for rank in range(ranks)]


def main(program: str, folder: str, device: str = "cpu") -> None:
    import rank_programs
    from gradsync.runtime.group import process_group

    with process_group(60.0, device) as (rank, ranks):
        result = getattr(rank_programs, program)(rank, ranks)
    Path(folder, f"rank{rank}.pickle").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
