"""How results are written: whole or not at all, and over nothing but an earlier result."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.files.reading import refuse_path

MASK = os.umask(0o022)  # it can only be read by setting it
os.umask(MASK)
UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}(\.[^.]*)?")  # a name as `replacing` gives it
PLAIN = 0o666 & ~MASK  # of a new file


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it is never seen half written; an earlier one stays until the new one is whole.

    Raises InputError if it can't be written, or if `refuse_target` refuses it.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a new empty file in the folder of `path`, with a name that nobody can foresee; at the end it becomes `path`.

    Raises InputError if it can't; an earlier file stays if the block raises.
    """
    refuse_target(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=path.suffix[:20], dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        yield temporary
        refuse_target(path)  # again: something may have come there since
        os.chmod(temporary, _mode(path))
        temporary.replace(path)
    except OSError as error:
        raise disk.refusal(error, path) from None
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: can't be written: {error.reason}") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed run has left half written in a folder, or below it, where nobody else writes now."""
    for path in folder.rglob(".*"):
        if UNFINISHED.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode):
            path.unlink(missing_ok=True)


def refuse_target(path: Path) -> None:
    """Raises InputError if a result would replace something else: a folder, device, pipe, socket, or a link's target.

    A link is allowed if it leads to a file of the folder that it lies in, or of one below.
    """
    refuse_path(path, "output")
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(os.path.realpath(path.parent)):
                raise InputError(f"{path}: can't be written: it is a link out of its folder, to {target}: remove it")
            status = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk.refusal(error, path) from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path}: can't be written: it is a folder: name a file")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: can't be written: it is a device, pipe or socket, no file: name another")


def make_folder(path: Path) -> Path:
    """Make the folder if it is missing, and return it; raises InputError if it can't be made."""
    refuse_path(path, "output")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: can't be made: {disk.reason(error, path)}") from None
    return path


def refuse_folder(path: Path, where: str) -> None:
    """Raises InputError if no folder of that name can be made or written to; makes nothing."""
    refuse_path(path, where)
    place = path
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        problem = "" if place.is_dir() else f"{place} is no folder"
        if not problem and not os.access(place, os.W_OK | os.X_OK):
            problem = f"{place} can't be written to"
    except OSError as error:
        problem = disk.reason(error, path)
    if problem:
        raise InputError(f"{where} {path}: {problem}")


def _mode(path: Path) -> int:
    """The mode of the file that is replaced, else that of any new file."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return PLAIN
