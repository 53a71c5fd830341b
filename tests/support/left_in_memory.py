"""What runs have left in the memory of this machine. Other tests run beside, so what lives is nobody's fault."""

from __future__ import annotations

import fcntl
import time
from contextlib import suppress
from pathlib import Path

from gradsync.lifetimes import leftovers
from waiting import HANGS_SECONDS


def left_in_memory() -> set[Path]:
    """Shared files, and folders, that have a name and no living maker, who would hold their lock."""
    return {path for path in leftovers.MEMORY.glob(f"{leftovers.PREFIX}*") if not _held(path)}


def stays_in_memory(before: set[Path]) -> set[Path]:
    """What is left, was not `before`, and stays: other tests, which end their own ranks, remove theirs in a while."""
    end = time.monotonic() + HANGS_SECONDS
    left = left_in_memory() - before
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left &= left_in_memory()
    return left


def _held(path: Path) -> bool:
    """Whether its maker lives, or it is gone meanwhile, or another user's."""
    with suppress(OSError), (path / leftovers.OWNER if path.is_dir() else path).open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    return True
