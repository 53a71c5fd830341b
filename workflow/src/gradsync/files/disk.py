"""Why a disk refuses a file, in words: no space is left, a quota is used up, a folder may only be read."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradsync.errors import InputError


class FullError(InputError):
    """No space is left, or none that this user may take: with more of it, the same file would be written."""


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Raises InputError for what goes wrong while `path` is written: it says what, where, and what to do."""
    try:
        yield
    except OSError as error:
        raise refusal(error, path) from None


def refusal(error: OSError, path: Path) -> InputError:
    """The error to raise if `path` can't be written."""
    kind = FullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else InputError
    return kind(f"{path}: can't be written: {reason(error, path)}")


def reason(error: OSError, path: Path) -> str:
    """Why `path` can't be written, and what to do."""
    folder = existing(path)
    match error.errno:
        case errno.ENOSPC:
            return f"no space left in {folder} ({_free(folder)}): make room, or take another folder"
        case errno.EDQUOT:
            return f"your quota in {folder} is used up: delete something there, or take another folder"
        case errno.EROFS:
            return f"{folder} is on a read-only file system: take another folder"
        case errno.EACCES | errno.EPERM:
            return f"you may not write into {folder}: take another folder"
        case errno.ENOTDIR | errno.EEXIST:
            return "something on its way is a file, no folder"
        case errno.EFBIG:
            return "larger than a file may be there (ulimit -f, or the file system's limit)"
    return error.strerror or str(error)


def refuse(folder: Path, need_bytes: float, what: str) -> None:
    """Raises InputError if `folder`, which need not exist, can't be written to, or has less room than `what` takes.

    A quota that the file system doesn't report is not seen.
    """
    nearest = existing(folder)
    if not os.access(nearest, os.W_OK | os.X_OK):
        only_read = os.statvfs(nearest).f_flag & os.ST_RDONLY
        raise refusal(OSError(errno.EROFS if only_read else errno.EACCES, ""), folder)
    free = room(folder)
    if free is not None and free < need_bytes:
        raise FullError(
            f"{folder}: no space left in {nearest}: {what} takes {size(need_bytes)}, {size(free)} are free: make room, "
            "or take another folder"
        )


def room(folder: Path) -> float | None:
    """Bytes that are free on the disk of `folder`, which need not exist; None if that can't be known."""
    try:
        return float(shutil.disk_usage(existing(folder)).free)
    except OSError:
        return None


def existing(path: Path) -> Path:
    """`path`, or the nearest folder above it, that exists."""
    absolute = Path(os.path.abspath(path))
    # os.path calls what lies in a locked folder no folder, of which pathlib raises
    return next((each for each in (absolute, *absolute.parents) if os.path.isdir(each)), Path("/"))


def _free(folder: Path) -> str:
    free = room(folder)
    return "what is free is unknown" if free is None else f"{size(free)} free"


def size(count: float) -> str:
    """Bytes in words."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
