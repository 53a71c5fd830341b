"""Images that jobs run in: a base, and on it gradsync with the CPU or the CUDA build of torch.

An image is made by Apptainer from `containers/KIND.def`, with what `envs/` pins, by an ordinary user (fakeroot). What
belongs to this host (mirror, package index, certificates, proxies) is lent to the build and not kept in the image.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gradsync.errors import InputError

BASE, CPU, CUDA = KINDS = ("base", "cpu", "cuda")
# Labels with the fingerprint.
DEFINITIONS, BASE_DEFINITIONS = "gradsync.definitions", "gradsync.base.definitions"


def definition(kind: str, project: Path = Path()) -> Path:
    """Where the definition of an image lies; raises InputError outside a checkout of gradsync."""
    path = project / "containers" / f"{kind}.def"
    if not path.is_file():
        raise InputError(f"image {kind}: {path} is missing: run this in the root of a checkout of gradsync")
    return path


def environment(kind: str, project: Path = Path()) -> Path:
    """Where the pinned environment of an image lies; raises InputError if there is none."""
    path = project / "envs" / f"{kind}.txt"
    if kind == BASE:
        raise InputError("image base: it holds no environment to check: name cpu or cuda")
    if not path.is_file():
        raise InputError(f"image {kind}: {path} is missing: run this in the root of a checkout of gradsync")
    return path


def sources(kind: str, project: Path = Path()) -> list[Path]:
    """The files that decide what is in an image, but for gradsync itself (jobs use the checkout's)."""
    base = definition(BASE, project)
    if kind == BASE:
        return [base]
    pinned = [project / "envs" / f"{name}.txt" for name in ("common", "constraints")]
    pinned += [project / "envs" / "constraints-cuda.txt"] if kind == CUDA else []
    return [base, definition(kind, project), project / "containers" / "install", environment(kind, project), *pinned]


def fingerprint(kind: str, project: Path = Path()) -> str:
    """A hash of `sources`, which the image carries as a label."""
    digest = hashlib.sha256()
    for path in sources(kind, project):
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            raise InputError(f"image {kind}: {path}: can't be read: {error}") from None
    return digest.hexdigest()[:16]
