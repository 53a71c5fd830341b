"""Exact top-k by a stable sort, which takes the first of equal magnitudes."""

from __future__ import annotations

import torch


def select(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
    """Positions, ascending."""
    return torch.sort(values.abs(), descending=True, stable=True).indices[:k].sort().values
