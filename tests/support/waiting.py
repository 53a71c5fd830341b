"""How tests wait for what must come: so long that only what hangs is late, on any machine and under any load."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGS_SECONDS = 600.0


def until(reached: Callable[[], object], among: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so; fails, with what `among` gives, if it hangs."""
    deadline = time.monotonic() + HANGS_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"not so after {HANGS_SECONDS:g} s: {among()}"
        time.sleep(0.1)
