"""Random-k: the host draws, since all readers draw the same; no value is looked at."""

from __future__ import annotations

import torch

from gradsync import compressors
from gradsync.compressors import random_k
from gradsync.runtime.selection import all_or_none, placed


def select(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
    """Positions that are drawn without replacement.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(values, k)
    return placed(random_k.drawn(compressors.generator(turn, len(values)), len(values), k), values)
