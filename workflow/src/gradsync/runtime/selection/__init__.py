"""What compressors select, with PyTorch: each module chooses the positions that its namesake in `compressors/` does."""

from __future__ import annotations

import importlib

from gradsync import compressors


def get(name: str) -> compressors.Select:
    """The selection of a compressor; raises InputError that lists the known ones."""
    compressors.get(name)
    select: compressors.Select = importlib.import_module(f"{__name__}.{name}").select
    return select
