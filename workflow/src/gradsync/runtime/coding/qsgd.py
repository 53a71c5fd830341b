"""Magnitudes rounded at random, as `gradsync.compressors.qsgd` has them, with the same random numbers.

The host draws these, and waits for the largest magnitude.
"""

from __future__ import annotations

import torch

from gradsync.compressors import qsgd, refuse_infinite
from gradsync.runtime.coding import _packed


def encode(
    values: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    *,
    levels: float = qsgd.LEVELS,
    bucket: float = qsgd.BUCKET,
    seed: float = 0,
    first: float = 0,
    turn: int,
    rank: int,
) -> None:
    """Symbols, s for zero and s + l sign(v) for others, and the norms."""
    elements, s = len(values), int(levels)
    magnitude = values.abs()
    scales.copy_(_norms(magnitude, qsgd.within(bucket, elements), len(scales)))
    scale = _of_elements(scales, bucket, elements)
    exact = magnitude / torch.where(scale > 0, scale, 1) * s
    level = exact.floor()
    drawn = qsgd.draws(elements, seed=seed, rank=rank, turn=turn, first=first)
    level += torch.from_numpy(drawn).to(values.device, non_blocking=True) < exact - level
    _packed.pack(torch.where(values < 0, -level, level) + s, qsgd.bits(s), codes)


def _norms(magnitude: torch.Tensor, bucket: int, buckets: int) -> torch.Tensor:
    """The Euclidean norm of each bucket, at most the largest number of the type.  # (buckets,)"""
    padded = torch.zeros(buckets * bucket, dtype=torch.float64, device=magnitude.device)
    padded[: len(magnitude)] = magnitude
    padded = padded.view(buckets, bucket)
    largest = padded.amax(dim=1)
    refuse_infinite("qsgd", float(largest.max()))
    padded /= torch.where(largest > 0, largest, 1)[:, None]
    norm = largest * padded.square_().sum(dim=1).sqrt_()
    return norm.clamp_(max=torch.finfo(magnitude.dtype).max)


def _of_elements(scales: torch.Tensor, bucket: float, elements: int) -> torch.Tensor:
    """The norm of each element's bucket.  # (elements,)"""
    return scales.repeat_interleave(qsgd.within(bucket, elements))[:elements]


def decode(
    codes: torch.Tensor,
    scales: torch.Tensor,
    values: torch.Tensor,
    *,
    levels: float = qsgd.LEVELS,
    bucket: float = qsgd.BUCKET,
) -> None:
    """Levels of the norms are added to `values`."""
    s = int(levels)
    level = _packed.unpack(codes, qsgd.bits(s), len(values)).to(values.dtype) - s
    values += _of_elements(scales, bucket, len(values)) * (level / s)
