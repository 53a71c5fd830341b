"""What a disk refuses, in words: no space left, a quota, a folder that may only be read."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradsync.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What goes wrong while `path` is written is an InputError that says what, where, and what to do."""
    try:
        yield
    except OSError as error:
        raise InputError(reason(error, path)) from None


def reason(error: OSError, path: Path) -> str:
    """Why `path` can't be written, and what to do."""
    folder = existing(path)
    match error.errno:
        case errno.ENOSPC:
            return f"{path}: no space left in {folder} ({_free(folder)}): make room, or take another folder"
        case errno.EDQUOT:
            return f"{path}: your quota in {folder} is used up: delete something there, or take another folder"
        case errno.EROFS:
            return f"{path}: can't be written: {folder} is on a read-only file system: take another folder"
        case errno.EACCES | errno.EPERM:
            return f"{path}: can't be written: you may not write into {folder}: take another folder"
        case errno.EFBIG:
            return f"{path}: can't be written: larger than a file may be there (ulimit -f, or the file system's limit)"
    return f"{path}: can't be written: {error.strerror or error}"


def refuse(folder: Path, need_bytes: float, what: str) -> None:
    """Raises InputError where `folder`, or where it will be, has less room than is needed for `what`.

    A quota that the file system doesn't tell of is not seen here.
    """
    there = existing(folder)
    try:
        free = shutil.disk_usage(there).free
    except OSError:
        return
    if free < need_bytes:
        raise InputError(
            f"{folder}: no space left in {there}: {what} takes {_size(need_bytes)}, {_size(free)} are free: make room, "
            "or take another folder"
        )


def existing(path: Path) -> Path:
    """The nearest folder that is there."""
    absolute = Path(os.path.abspath(path))
    return next((each for each in (absolute, *absolute.parents) if each.is_dir()), Path("/"))


def _free(folder: Path) -> str:
    try:
        return f"{_size(shutil.disk_usage(folder).free)} free"
    except OSError:
        return "what is free is unknown"


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
