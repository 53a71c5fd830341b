"""Exact top-k by `torch.topk` of the magnitudes. The host waits once, to see whether the k-th largest is unique."""

from __future__ import annotations

import torch

from gradsync.runtime.selection import all_or_none, keys, largest


def select(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
    """Positions of the k largest magnitudes; of equal ones the first.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(values, k)
    return largest(keys(values), k)
