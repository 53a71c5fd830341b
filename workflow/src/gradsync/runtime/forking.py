"""The ranks of a launch on this machine are forks of one process, their stem, which has loaded torch once for all.

To load it takes seconds of a core, and ranks that share cores would wait for one another. The launcher starts the stem
as it would start a rank, with a request in its environment; `become_ranks` forks it once per rank, each on its host of
a testbed, and ends it. Its orphans then are children of the launcher, which has asked the kernel for them (prctl(2),
PR_SET_CHILD_SUBREAPER), and go on once the launcher says so.

Ranks on GPUs are started one by one: what CUDA has begun does not survive a fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, NamedTuple

from gradsync.errors import RunError
from gradsync.lifetimes import lifeline
from gradsync.runtime import endings
from gradsync.testbed import namespaces

VARIABLE = "GRADSYNC_BECOMES_RANKS"
OF_ALL = "gradsync.runtime.group"  # what ranks load, and torch with it
OF_COMMANDS = {("train",): "gradsync.runtime.train"}
"""What a stem loads further, by the first words of the command of its ranks."""
OF_OPTIONS = {"--peer=": "torch._dynamo"}
"""And by options: stock DDP and torch's optimizers load torch's compiler, which is as much as torch itself."""
OF_MODEL = "--model="  # a stem loads what the model is built with
POLL_SECONDS = 0.01
OF_A_PIPE = 1 << 16  # bytes: what is read at once has whole lines
FAILED = 1  # exit status


class Place(NamedTuple):
    """Where a rank runs: its number among the ranks of its host, and on a testbed the namespace of that host."""

    local_rank: int
    namespace: str = ""


class Rank:
    """A rank that is a child of this process; it is watched and ended as one of `subprocess.Popen` is."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status; raises subprocess.TimeoutExpired after `timeout` seconds."""
        until = time.monotonic() + timeout if timeout is not None else None
        while (status := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"rank with process id {self.pid}", timeout or 0.0)
            time.sleep(POLL_SECONDS)
        return status

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def start(
    command: Sequence[str], environment: Mapping[str, str], places: Sequence[Place], listener: int | None = None
) -> list[Rank]:
    """Start a program that calls `become_ranks` first; its ranks, in order. `listener`: a descriptor for rank 0.

    Raises RunError if the stem ends before there are ranks. No rank is left then.
    """
    reading, says = os.pipe()
    waits, writing = os.pipe()
    passed = [says, waits, *([] if listener is None else [listener])]
    with (
        lifeline.adopting(),
        BufferedReader(FileIO(reading), OF_A_PIPE) as said,
        open(writing, "wb", buffering=0) as go_on,
    ):
        try:
            stem = subprocess.Popen(
                command,
                env={**environment, VARIABLE: json.dumps([places, says, waits, listener])},
                pass_fds=passed,
                preexec_fn=lifeline.killed_with_parent(signal.SIGKILL),
            )
        finally:
            os.close(says)
            os.close(waits)
        by_pid: dict[int, Rank] = {}
        try:
            _hear(said, by_pid)
            ranks = list(by_pid.values())
            status = stem.wait()
            if status or len(ranks) != len(places):
                how = f"{endings.how(status)}{endings.hint(status)}"
                raise RunError(f"the process that becomes {len(places)} ranks {how}")
            with suppress(BrokenPipeError):  # all have ended already: whoever watches them sees that
                go_on.write(b"." * len(ranks))
        except BaseException:
            stem.kill()
            stem.wait()
            _hear(said, by_pid)
            for rank in by_pid.values():
                rank.kill()
                rank.wait()
            raise
    return ranks


def _hear(said: BufferedReader[FileIO], by_pid: dict[int, Rank]) -> None:
    """Add the ranks that a stem names, until it has ended.

    What a signal's handler raises may end this anywhere. A second call then hears of the ranks that were not added.
    """
    while named := said.peek():
        for pid in map(int, named.split()):
            if pid not in by_pid:
                by_pid[pid] = Rank(pid)
        said.read(len(named))


def become_ranks() -> None:
    """Return at once unless the environment asks for ranks; else each rank returns, and the process itself ends."""
    request = os.environ.pop(VARIABLE, "")
    if not request:
        return
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends the stem without a word: the launcher has one
    places, says, waits, listener = json.loads(request)
    _load(sys.argv[1:])
    gc.collect()
    gc.freeze()  # memory that no rank's collections touch stays one for all
    sys.stdout.flush()
    sys.stderr.flush()
    for rank, place in enumerate(places):
        try:
            child = os.fork()
        except OSError as error:
            print(f"gradsync: rank {rank} of {len(places)} can't be started: {error.strerror}", file=sys.stderr)
            os._exit(FAILED)
        if child == 0:
            os.close(says)
            return _go_on(rank, Place(*place), waits, listener, interrupted)
        with suppress(BrokenPipeError):  # the launcher is gone: the ranks will know
            os.write(says, f"{child}\n".encode())
    os._exit(0)  # what torch does at an exit is the ranks' own


def _load(arguments: Sequence[str]) -> None:
    """Load what every rank of that command would."""
    importlib.import_module(OF_ALL)
    for words, module in OF_COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            importlib.import_module(module)
    for option, module in OF_OPTIONS.items():
        if any(each.startswith(option) for each in arguments):
            importlib.import_module(module)
    for model in {each.removeprefix(OF_MODEL) for each in arguments if each.startswith(OF_MODEL)}:
        importlib.import_module("gradsync.runtime.models").load(model)


def _go_on(rank: int, place: Place, waits: int, listener: int | None, interrupted: Any) -> None:
    """Be a rank, once it is the launcher's child and that says so."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(place.local_rank)}
    if listener is not None and rank:
        os.close(listener)
    elif listener is not None:
        os.environ["GRADSYNC_LISTEN_FD"] = str(listener)
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"rank {rank}")  # as top and ps show it
    if place.namespace:
        try:
            namespaces.enter(place.namespace)
        except OSError as error:
            print(f"gradsync: rank {rank} can't run on its host: {error}", file=sys.stderr)
            os._exit(FAILED)
    if not os.read(waits, 1):  # the stem or the launcher has failed
        os._exit(FAILED)
    os.close(waits)
    signal.signal(signal.SIGINT, interrupted)
