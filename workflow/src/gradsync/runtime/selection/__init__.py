"""What compressors select, with PyTorch: each module chooses the positions that its namesake in `compressors/` does."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch

from gradsync import compressors

Select = Callable[..., torch.Tensor]


def get(name: str) -> Select:
    """The selection of a compressor; raises InputError that lists the known ones."""
    compressors.get(name)
    select: Select = importlib.import_module(f"{__name__}.{name}").select
    return select
