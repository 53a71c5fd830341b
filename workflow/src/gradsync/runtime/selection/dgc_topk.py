"""Top-k by double sampling. The host waits for the number of survivors, on which the second top-k depends."""

from __future__ import annotations

import torch

from gradsync.compressors.dgc_topk import STRIDE, first_sampled
from gradsync.runtime.selection import all_or_none, keys, largest


def select(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
    """Positions of the k largest magnitudes; of equal ones the first.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(values, k)
    magnitude = keys(values)
    sample = magnitude[first_sampled(turn, len(values)) :: STRIDE]
    place = max(1, k // STRIDE)
    while place <= len(sample):
        threshold = torch.topk(sample, place, sorted=False).values.min()
        survivors = (magnitude >= threshold).nonzero().flatten()
        if len(survivors) >= k:
            return survivors[largest(magnitude[survivors], k)]
        place *= 2
    return largest(magnitude, k)
