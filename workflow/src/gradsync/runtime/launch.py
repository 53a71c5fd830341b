"""Start the ranks of one launch, watch them, and end them all when one fails; they end with the launcher, too.

Each rank is this program again. On this machine it gets torchrun's variables in its environment, and the launcher holds
the rendezvous port open from the beginning and hands it to rank 0, so that no other program can take it in between;
ranks on CPUs are forks of one process (`forking.py`). On a cluster GRADSYNC_LAUNCH names the command that starts ranks
on its nodes (`slurm/launch.py`).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psutil

from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline
from gradsync.runtime import endings, fabric, forking, links
from gradsync.slurm.launch import LAUNCH, RANKS_A_NODE, filled
from gradsync.slurm.rendezvous import INTERFACES
from gradsync.testbed.namespaces import Testbed
from gradsync.testbed.wiring import CONTROL

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MOST_RANKS_A_CORE = 16
MEMORY_A_RANK = 500e6  # bytes: torch and its libraries alone take some 300 MB
GRACE_SECONDS = 5.0
STEP_GRACE_SECONDS = 40.0  # srun gives its tasks Slurm's KillWait, 30 s by default
BAD_INPUT = 2  # exit status
SAY_SECONDS = 0.2  # in which ranks that have lost a peer say in which message
ENDS_SECONDS = 3.0  # in which one that failed by itself has said why: its peers notice that it left the group before
TESTBED_PORT = 29500  # of the rendezvous, on a network that is ours alone
Child = subprocess.Popen[Any] | forking.Rank


def is_rank() -> bool:
    """True in a process that some launcher has started as a rank."""
    return all(name in os.environ for name in VARIABLES)


def elsewhere() -> bool:
    """True if ranks are started by another command, on machines that this one can't judge."""
    return bool(os.environ.get(LAUNCH))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def room_for(ranks: int, where: str) -> None:
    """Raises InputError unless `ranks` is a number of ranks that this machine can hold."""
    if ranks < 1:
        raise InputError(f"{where}: {ranks} ranks: at least 1")
    if elsewhere():
        return
    available = psutil.virtual_memory().available  # with what files fill that can be given up
    most = min(MOST_RANKS_A_CORE * cores(), max(1, int(available / MEMORY_A_RANK)))
    if ranks > most:
        raise InputError(
            f"{where}: {ranks} ranks are more than this machine can hold ({cores()} cores, "
            f"{available / 1e9:.1f} GB free): at most {most}"
        )


def launch(arguments: list[str], ranks: int, testbed: Testbed | None = None, *, gpus: bool = False) -> None:
    """Run `python -m gradsync ARGUMENTS` as `ranks` ranks, here or on a cluster's nodes, and wait for all of them.

    With a testbed, each rank runs on its host there. `gpus`: ranks compute on GPUs.

    Raises RunError that names the first rank that failed; the others have ended by then.
    """
    # whoever started this process may have had it ignore how its children end
    meanwhile: dict[signal.Signals, Any] = {signal.SIGTERM: _leave, signal.SIGCHLD: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in meanwhile.items()}
    try:
        if testbed is not None:
            _on_hosts(arguments, ranks, testbed)
        elif elsewhere():
            _by_command(arguments, ranks)
        else:
            _here(arguments, ranks, gpus)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(*_: object) -> None:
    """Ended from outside: the ranks are ended on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def _by_command(arguments: list[str], ranks: int) -> None:
    """One process starts all ranks and ends them when one fails, as srun does with --kill-on-bad-exit."""
    starter = filled(os.environ[LAUNCH], ranks, int(os.environ.get(RANKS_A_NODE, "1")))
    blamed = refusal = ""
    insist: threading.Timer | None = None
    try:
        child = subprocess.Popen(
            [*starter, "python", "-m", "gradsync", *arguments],
            env=lifeline.led(os.environ),
            # srun knows nothing of leaders; asked so, it ends the step
            preexec_fn=lifeline.killed_with_parent(signal.SIGTERM),
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise InputError(f"{LAUNCH}: {starter[0]} can't be run: {error.strerror}") from None
    assert child.stderr is not None
    try:
        for line in child.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            blamed = blamed or _blamed(line)
            refusal = refusal or line.strip().partition("gradsync: ")[2]
            if blamed and insist is None:
                # srun ends the others by itself, but waits for ever for a task that has lost its slurmstepd
                insist = threading.Timer(GRACE_SECONDS, child.terminate)
                insist.daemon = True
                insist.start()
        status = child.wait()
    finally:
        if insist is not None:
            insist.cancel()
        _end([child], STEP_GRACE_SECONDS)
    # if srun ends the others at once, its own status is theirs
    if status == BAD_INPUT or (status and blamed.endswith(f"Exited with exit code {BAD_INPUT}")):
        raise InputError(f"the ranks refused their input: {refusal or 'see above'}")
    if status:
        hint = endings.OUT_OF_MEMORY if "Kill" in blamed or "memory" in blamed.lower() else ""
        raise RunError(
            f"{blamed or f'{starter[0]} ended with status {status}: see above'}; the other ranks were ended{hint}"
        )


def _blamed(line: str) -> str:
    """`rank 3 on n2: Killed` from what srun says of a task that failed by itself; empty for any other line."""
    ended = re.match(r"(?:srun|slurmstepd): error: (\S+): tasks? ([\d,-]+): (.+)", line)
    if not ended or "Terminated" in ended[3]:  # ended because another one failed
        return ""
    return f"rank {ended[2]} on {ended[1]}: {ended[3]}"


def _here(arguments: list[str], ranks: int, gpus: bool) -> None:
    children: list[Child] = []
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=max(ranks, 64)) as listener:
            for child in _started_here(arguments, ranks, gpus, listener):
                children.append(child)
        _watch(children)
    finally:
        _end(children)


def _started_here(arguments: list[str], ranks: int, gpus: bool, listener: socket.socket) -> Iterator[Child]:
    """The ranks, one after another; the first has the listener."""
    environment = {
        **lifeline.led(os.environ),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(listener.getsockname()[1]),
        # a workflow may have set either for one process; ranks that take more than their share starve each other
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(max(1, cores() // ranks))),
    }
    # By default Gloo listens where the host's own name leads, on many machines nowhere, and NCCL where others reach it.
    environment |= dict.fromkeys(INTERFACES, "lo")
    command = [sys.executable, "-m", "gradsync", *arguments]
    if not gpus and ranks > 1:
        yield from forking.start(command, environment, [*map(forking.Place, range(ranks))], listener.fileno())
        return
    for rank in range(ranks):
        variables, passed = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, list[int]()
        if rank == 0:
            variables["GRADSYNC_LISTEN_FD"] = str(listener.fileno())
            passed.append(listener.fileno())
        yield subprocess.Popen(command, env=variables, pass_fds=passed)


def _on_hosts(arguments: list[str], ranks: int, testbed: Testbed) -> None:
    """Ranks meet over the control network; nobody else is there to take the port."""
    places = testbed.places()
    if ranks > len(places):
        raise InputError(f"testbed: {ranks} ranks, its hosts hold {len(places)}")
    rails = testbed.interfaces()
    environment = {
        **lifeline.led(os.environ),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": testbed.address(0, None),
        "MASTER_PORT": str(TESTBED_PORT),
        fabric.INTERFACE: CONTROL,
        **fabric.environment(testbed.switches(), rails, testbed.lanes, testbed.addresses // testbed.lanes),
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # that hosts have no names
    }
    command = [sys.executable, "-m", "gradsync", *arguments]
    on_hosts = [forking.Place(place, testbed.namespace(host)) for host, place in places[:ranks]]
    children = forking.start(command, environment, on_hosts)
    try:
        _watch(children, [CONTROL, *rails])
    finally:
        _end(children)


def _watch(children: Sequence[Child], interfaces: Sequence[str] = ()) -> None:
    """`interfaces`: those of a host, which its ranks watch."""
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
                rank, status = _by_itself(rank, status, running, interfaces)
                how = f"{_how(status, interfaces)}; the other ranks were ended{endings.hint(status)}"
                raise RunError(f"rank {rank} {how}")
        time.sleep(0.02)


def _by_itself(rank: int, status: int, running: Mapping[int, Child], interfaces: Sequence[str]) -> tuple[int, int]:
    """The rank that died by itself, and its status: one that lost a peer fails too, and may be the first to do so."""
    now = time.monotonic()
    say_until, notice_until = now + SAY_SECONDS, now + (links.NOTICED_SECONDS if interfaces else ENDS_SECONDS)
    while True:
        statuses = {other: how for other, child in running.items() if (how := child.poll()) is not None}
        statuses[rank] = status
        first = next((other for other, how in statuses.items() if how < 0 or links.lost(how, interfaces)), None)
        now = time.monotonic()
        if len(statuses) > len(running) or now > (notice_until if first is None else say_until):
            blamed = rank if first is None else first
            return blamed, statuses[blamed]
        time.sleep(0.02)


def _await(child: Child, seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _how(status: int, interfaces: Sequence[str]) -> str:
    if lost := links.lost(status, interfaces):
        return f"ended: link down, interface {lost} of its host"
    return endings.how(status)


def _end(children: Sequence[Child], grace_seconds: float = GRACE_SECONDS) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + grace_seconds
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
