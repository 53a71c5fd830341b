"""Compressors for torch: which k elements of a tensor are sent, fast, on a processor or a GPU.

A module means what its namesake in `gradsync.compressors` means and chooses the same positions (a test compares them):

    select(values: Tensor, k, *, turn) -> Tensor  # (elements,) floating -> (k,) int64, ascending, on the same device

A compressor without a module here is computed by its NumPy reading: the values travel to the host and back.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import torch

from gradsync import compressors
from gradsync.names import modules_in

Select = Callable[..., torch.Tensor]
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element


def get(name: str) -> Select:
    """`select` of a compressor; raises InputError that lists the known ones."""
    reference = compressors.get(name)
    if name in modules_in(__path__):
        select: Select = importlib.import_module(f"{__name__}.{name}").select
        return select

    def by_reference(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
        return placed(reference.select(values.cpu().numpy(), k, turn=turn), values)

    return by_reference


def placed(positions: np.ndarray, values: torch.Tensor) -> torch.Tensor:
    """Positions that the host has computed, on the device of the values."""
    return torch.from_numpy(positions).to(values.device, non_blocking=True)


def all_or_none(values: torch.Tensor, k: int) -> torch.Tensor:
    """What `compressors.all_or_none` is for these values."""
    return placed(compressors.all_or_none(len(values), k), values)


def keys(values: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the magnitudes, as `compressors.keys` has them; memory for a copy.  # (elements,)"""
    integer = INTEGERS[values.element_size()]
    return values.contiguous().view(integer).bitwise_and(torch.iinfo(integer).max)


def largest(magnitude: torch.Tensor, k: int) -> torch.Tensor:
    """Positions of the k largest keys, ascending; of equal ones the first. The host waits for one bit.  # (k,)"""
    top = torch.topk(magnitude, min(k + 1, len(magnitude)))
    if k == len(magnitude) or bool(top.values[k - 1] > top.values[k]):
        return top.indices[:k].sort().values
    above = magnitude > top.values[k]
    ties = (magnitude == top.values[k]).nonzero().flatten()
    return torch.cat([above.nonzero().flatten(), ties[: k - int(above.sum())]]).sort().values
