"""MSTopK to the letter. The host waits for each sampling, since the letter decides by its count.

On a processor the mean is NumPy's, so that thresholds are those of the NumPy reading to the last bit. On a GPU the mean
may differ in the last place of float64, which 32-bit thresholds do not show.
"""

from __future__ import annotations

import torch

from gradsync.compressors import mstopk_as_printed as letter
from gradsync.compressors.mstopk import Search
from gradsync.runtime.selection import all_or_none


def search(a: torch.Tensor, k: int) -> Search:
    """The thresholds of the k largest of the magnitudes `a`, after all samplings (lines 2 to 24)."""
    mean = float(a.numpy().mean(dtype="f8")) if a.device.type == "cpu" else float(a.mean(dtype=torch.float64))

    def rounded(threshold: float) -> float:
        return float(torch.tensor(threshold, dtype=a.dtype))

    def nnz(threshold: float) -> int:
        return int((a >= threshold).sum())

    return letter.sampled(mean, float(a.max()), len(a), k, nnz, rounded)


def select(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
    """Positions as Algorithm 1 has them; raises RunError where it fails.  # (k,)"""
    if k < 0 or k >= len(values):
        return all_or_none(values, k)
    a = values.abs()
    found = search(a, k)
    between = ((a < found.first) & (a >= found.second)).nonzero().flatten()
    chosen = between[letter.run(found, len(between), k, turn, len(values))]
    return torch.cat([(a >= found.first).nonzero().flatten(), chosen]).sort().values
