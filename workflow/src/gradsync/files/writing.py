"""How results are written: whole or not at all, over nothing but a file of one's own."""

from __future__ import annotations

import os
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
PLAIN = 0o666 & ~MASK  # of a new file


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it is never seen half written; an earlier one stays until then.

    Raises InputError if it can't be written, or `refuse_target` refuses it.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new empty file in the folder of `path`, of a name that nobody can foresee, which takes its place at the end.

    Raises InputError if that can't be; an earlier file stays where the block raises.
    """
    refuse_target(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=path.suffix[:20], dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        yield temporary
        refuse_target(path)  # what has come there since
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


def refuse_target(path: Path) -> None:
    """Raises InputError if a result would replace what is none: a folder, device, pipe, socket, a link's target.

    A link is one's own where it leads to a file of the folder that it lies in, or of one below.
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
    """The folder, made where it is not there; raises InputError if it can't be."""
    refuse_path(path, "output")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: can't be made: {disk.reason(error, path)}") from None
    return path


def refuse_folder(path: Path, where: str) -> None:
    """Raises InputError if no folder of that name can be made, or written to; makes nothing."""
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
    """That of the file that is replaced, else what any new file gets."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return PLAIN
