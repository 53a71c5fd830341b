"""Which folders of the host a job in an image must see: Apptainer mounts the checkout, not what its links lead to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def bound(before: str, folders: Iterable[str | None], checkout: Path) -> str:
    """APPTAINER_BIND with those of `folders` that lie, or whose links lead, outside `checkout`; `before` stays in it.

    A folder that does not exist is left out: Apptainer would refuse every job for it.
    """
    places = [entry for entry in before.split(",") if entry]
    for folder in sorted({folder for folder in folders if folder}):
        path = Path(folder)
        if not path.is_dir():
            continue
        linked = [entry.resolve() for entry in path.iterdir() if entry.is_symlink() and entry.exists()]
        named = [path] if path.is_absolute() else []
        for place in map(str, [*named, path.resolve(), *linked]):
            if not Path(place).is_relative_to(checkout) and place not in places:
                places.append(place)
    return ",".join(places)
