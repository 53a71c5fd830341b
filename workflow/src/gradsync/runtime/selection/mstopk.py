"""MSTopK, corrected, in three ways with one result: the exact top k, and of equal magnitudes a run from a random start.

On a GPU, where the host must not wait, kernels in Triton select (`_mstopk_on_gpu.py`). Where they don't serve, the
threshold comes from `torch.topk`. On a processor each pass over memory costs, and a wait nothing. So the threshold
comes from a random sample, low enough that k elements pass it but for one vector in millions; one pass takes the
largest and the smallest value of each block of 64 elements, and the few blocks that hold candidates are looked through.
All elements that are not less than the exact threshold are among the candidates, whatever the sample is. If fewer than
k pass, the search of `gradsync.compressors.mstopk` decides, which counts 31 times (63 for 64-bit numbers).
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from math import ceil, sqrt
from typing import Any

import torch

from gradsync.compressors import generator
from gradsync.compressors.mstopk import run_start
from gradsync.runtime.selection import all_or_none, keys

BLOCK = 64  # elements
SAMPLED = 1 << 16  # elements at the most
STRATUM = 16  # elements of which the sample has one, where that makes fewer
SHORT = 1 << 14  # elements; of fewer, all are looked through
DEVIATIONS = 5  # by which more of the sample are taken than is to be expected


def select(values: torch.Tensor, k: int, *, turn: int) -> torch.Tensor:
    """Positions of the k largest magnitudes; of equal ones a run.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(values, k)
    start = run_start(turn, len(values))
    if values.device.type == "cpu":
        return _on_a_processor(values, k, turn, start)
    kernels = kernels_on(values.device)
    if kernels is not None and kernels.serves(values, k):
        return kernels.select(values, k, start)
    magnitude = keys(values)
    return taken(magnitude, torch.topk(magnitude, k, sorted=False).values.amin(), k, start)


@functools.cache
def kernels_on(device: torch.device) -> Any:
    """The kernels for a GPU, tried once; None without Triton, and without the C compiler that it needs."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        from gradsync.runtime.selection import _mstopk_on_gpu

        for _ in ("compiled", "launched as compiled"):
            _mstopk_on_gpu.select(torch.zeros(_mstopk_on_gpu.LEAST_ELEMENTS, device=device), 1, 0.0)
    except Exception as error:  # of Triton's import or of its compiler, whatever it is
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        print(
            f"gradsync: mstopk selects by torch.topk: Triton can't build its kernels here: {reason}",
            file=sys.stderr,
        )
        return None
    return _mstopk_on_gpu


def _on_a_processor(values: torch.Tensor, k: int, turn: int, start: float) -> torch.Tensor:
    if len(values) < SHORT:
        magnitude = keys(values)
        return taken(magnitude, _by_selection(magnitude, k), k, start)
    positions = candidates(values, k, turn)
    if k <= len(positions) <= len(values) // 4:
        magnitude = keys(values[positions])
        return positions[taken(magnitude, _by_selection(magnitude, k), k, start)]
    magnitude = keys(values)
    return taken(magnitude, threshold(magnitude, k), k, start)


def _by_selection(magnitude: torch.Tensor, k: int) -> torch.Tensor:
    return magnitude.kthvalue(len(magnitude) - k + 1).values


def threshold(magnitude: torch.Tensor, k: int) -> torch.Tensor:
    """The k-th largest key, by halving the range of keys as often as a key has bits.  # ()"""
    bits = 8 * magnitude.element_size() - 1
    low = magnitude.new_zeros(())
    for bit in reversed(range(bits)):  # the threshold bit by bit: `low` is always one that k or more are not less than
        trial = low + (1 << bit)
        low = torch.where((magnitude >= trial).sum() >= k, trial, low)
    return low


def taken(magnitude: torch.Tensor, exact: torch.Tensor, k: int, start: float) -> torch.Tensor:
    """Positions of the keys above the exact threshold, and of a run of those equal to it. No wait.  # (k,)"""
    above, equal = magnitude > exact, magnitude == exact
    lacking = k - above.sum()
    first = (start * (equal.sum() - lacking + 1).double()).long()
    place = equal.cumsum(0, dtype=torch.int32)  # from 1
    run = equal & (place > first) & (place <= first + lacking)
    return torch.nonzero_static(above | run, size=k).flatten()


def candidates(values: torch.Tensor, k: int, turn: int) -> torch.Tensor:
    """Positions of all elements not less than a threshold that about k, and most probably more, are not less than."""
    elements = len(values)
    sampled = min(SAMPLED, elements // STRATUM)
    stratum = elements // sampled  # the sample has one element of each stratum
    inside = generator(turn, elements).integers(stratum, size=sampled)
    sample = keys(values[torch.arange(sampled) * stratum + torch.from_numpy(inside)])
    expected = k / stratum  # even if all that is chosen lies in strata: a rest belongs to none
    place = ceil(expected + DEVIATIONS * sqrt(expected) + DEVIATIONS)
    if place > sampled:
        return torch.arange(0)
    key = torch.topk(sample, place, sorted=False).values.min()
    low = key.view(values.dtype)
    blocks = values[: elements // BLOCK * BLOCK].view(-1, BLOCK)
    empty = (blocks.amax(1) < low) & (blocks.amin(1) > -low)  # NaN: not empty
    held = (~empty).nonzero().flatten()
    row, column = (keys(blocks[held].flatten()).view(-1, BLOCK) >= key).nonzero(as_tuple=True)
    rest = (keys(values[blocks.numel() :]) >= key).nonzero().flatten() + blocks.numel()
    return torch.cat([held[row] * BLOCK + column, rest])
