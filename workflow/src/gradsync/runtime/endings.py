"""How a process ended, in words."""

from __future__ import annotations

import signal

CRASHES = frozenset((signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV))
OUT_OF_MEMORY = " (if nobody killed it, memory ran out: take fewer ranks or contenders, or a smaller batch)"


def how(status: int) -> str:
    """What follows the name of a process that ended with `status`, which is negative for a signal."""
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    return f"crashed with {name}: its stacks are above" if -status in CRASHES else f"was killed by {name}"


def hint(status: int) -> str:
    """What to do about it, if that is known."""
    return OUT_OF_MEMORY if status == -signal.SIGKILL else ""
