"""Nothing that an input asks for is started while it is tried: no process, no connection, no database, no signal.

What a subcommand starts comes after all that it refuses. So an input is accepted if it comes that far, and a campaign
may give every option of every subcommand any value.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

LIMIT_SECONDS = 60  # of processor time: far beyond what any machine needs for an input
STARTS = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "os.kill", "os.killpg")
) | {"socket.connect", "socket.bind", "socket.getaddrinfo", "sqlite3.connect"}


class StartedError(BaseException):
    """The subcommand would start its work now."""


class EndlessError(BaseException):
    """An input that did not end."""


class _Guard:
    armed = False
    events: frozenset[str] = STARTS

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.armed and event in self.events and not (event == "os.kill" and arguments[1] == 0):
            raise StartedError(event)


_GUARD = _Guard()
sys.addaudithook(_GUARD)


@contextlib.contextmanager
def guarded(*more: str) -> Iterator[None]:
    """Raises StartedError for STARTS and `more` audit events, EndlessError after LIMIT_SECONDS."""

    def ended(*_: object) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGPROF, ended)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    _GUARD.armed, _GUARD.events = True, STARTS | {*more}
    try:
        yield
    finally:
        _GUARD.armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
