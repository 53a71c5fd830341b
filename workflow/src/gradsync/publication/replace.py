"""An entry takes the place of an earlier one at once: nobody sees half of it, and a failure leaves the earlier one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from gradsync.errors import InputError
from gradsync.files import disk, reading
from gradsync.publication import entry

HERE, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def refuse_place(output: Path) -> None:
    """Raises InputError if an entry at `output` would replace anything but an entry that is as it was made."""
    reading.refuse_path(output, "output")
    with disk.explain_errors(output):
        if output.is_symlink():
            raise InputError(f"{output}: it is a link, to {output.readlink()}: name the folder itself with --output")
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return
        if not (output / entry.ENTRY).is_file():
            raise InputError(f"{output}: it is no entry of published results: name another folder with --output")
        foreign = sorted(_foreign(output))
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise InputError(
            f"{output}: {foreign[0]}{more}: not as an earlier `gradsync publish` made it: move it away, or the whole "
            "folder"
        )


def put(made: Path, output: Path) -> None:
    """Rename `made` to `output`; an earlier folder of that name is then where `made` was. Raises OSError."""
    if not output.exists():
        made.rename(output)
        return
    if _exchanged(made, output):
        return
    aside = made.with_name(f"{made.name}.earlier")  # on file systems that exchange no folders
    output.rename(aside)
    try:
        made.rename(output)
    except BaseException:
        aside.rename(output)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Whether two folders have changed their places, in one step."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    ended: int = library.renameat2(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE)
    return ended == 0


def _foreign(folder: Path) -> Iterator[str]:
    """What lies in an entry and was not made with it, or was changed since."""
    made = entry.provenance(folder).files
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        plain = path.is_file() and not path.is_symlink()
        if not plain or (name != entry.ENTRY and made.get(name) != entry.hash_of(path)):
            yield name
