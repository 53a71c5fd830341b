"""Start the ranks of one launch on this machine, watch them, and end them all when one fails.

Each rank is this program again with torchrun's variables in its environment. The launcher holds the rendezvous port
open from the beginning and hands it to rank 0, so that no other program can take it in between.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

from gradsync.errors import InputError, RunError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MOST_RANKS_A_CORE = 16
MEMORY_A_RANK = 500e6  # bytes: torch and its libraries alone take some 300 MB
GRACE_SECONDS = 5.0
BAD_INPUT = 2  # exit status
OUT_OF_MEMORY = " (where nobody killed it, memory ran out: take fewer ranks or contenders, or a smaller batch)"


def is_rank() -> bool:
    """True in a process that some launcher has started as a rank."""
    return all(name in os.environ for name in VARIABLES)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def room_for(ranks: int, where: str) -> None:
    """Raises InputError unless `ranks` is a number of ranks that this machine can hold."""
    if ranks < 1:
        raise InputError(f"{where}: {ranks} ranks: at least 1")
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = min(MOST_RANKS_A_CORE * cores(), max(1, int(available / MEMORY_A_RANK)))
    if ranks > most:
        raise InputError(
            f"{where}: {ranks} ranks are more than this machine can hold ({cores()} cores, "
            f"{available / 1e9:.1f} GB free): at most {most}"
        )


def launch(arguments: list[str], ranks: int) -> None:
    """Run `python -m gradsync ARGUMENTS` as `ranks` ranks on this machine and wait for all of them.

    Raises RunError that names the first rank that failed; the others have ended by then.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=max(ranks, 64))
    environment = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(listener.getsockname()[1]),
        # a workflow may have set either for one process; ranks that take more than their share starve each other
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(max(1, cores() // ranks))),
    }
    # Gloo resolves the host's own name by default, which on many machines leads nowhere
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = [sys.executable, "-m", "gradsync", *arguments]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            own = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            handed: tuple[int, ...] = ()
            if rank == 0:
                own["GRADSYNC_LISTEN_FD"] = str(listener.fileno())
                handed = (listener.fileno(),)
            children.append(subprocess.Popen(command, env=own, pass_fds=handed))
        listener.close()
        _watch(children)
    finally:
        _end(children)


def _watch(children: list[subprocess.Popen[bytes]]) -> None:
    running = dict(enumerate(children))
    while running:
        for rank, child in list(running.items()):
            status = child.poll()
            if status is None:
                continue
            del running[rank]
            if status == BAD_INPUT:
                _await(children[0], GRACE_SECONDS)  # the one that says what is wrong
                raise InputError("the ranks refused their input: see above")
            if status:
                # a rank that lost a peer fails too: give the one that died by itself the blame
                time.sleep(0.2)
                killed = [r for r, c in running.items() if (c.poll() or 0) < 0]
                rank, status = (
                    (rank, status) if status < 0 or not killed else (killed[0], children[killed[0]].returncode)
                )
                hint = OUT_OF_MEMORY if status == -signal.SIGKILL else ""
                raise RunError(f"rank {rank} {_how(status)}; the other ranks were ended{hint}")
        time.sleep(0.02)


def _await(child: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _how(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
