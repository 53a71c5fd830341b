"""Which code is running: the commit of the checkout, and whether it was changed since."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from gradsync import __version__
from gradsync.files import packaged

DIRTY = "-dirty"  # behind a commit, with uncommitted changes


def code_version(project: Path = Path()) -> str:
    """The version of the code in a folder as git tells it (dirty: with uncommitted changes), else of the package."""
    return _described(project) or __version__


@cache
def running() -> str:
    """The commit of the code that runs, `-dirty` with uncommitted changes; empty if it doesn't run from a checkout."""
    if packaged.COPIES.is_dir() or not (packaged.ROOT / ".git").exists():
        return ""
    return _described(packaged.ROOT, "--exclude=*", "--abbrev=12")


def unclean(code: str) -> str:
    """Why nobody can get exactly this code again; empty if it is a commit."""
    if not code:
        return "the commit that it was made with is not known"
    return "it was made with uncommitted changes" if code.endswith(DIRTY) else ""


def _described(folder: Path, *options: str) -> str:
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", *options]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
