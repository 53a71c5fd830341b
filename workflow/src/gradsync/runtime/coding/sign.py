"""Signs times the mean magnitude, as `gradsync.compressors.sign` has them. The host waits for the largest magnitude."""

from __future__ import annotations

import torch

from gradsync.compressors import refuse_infinite
from gradsync.compressors.sign import BITS
from gradsync.runtime.coding import _packed


def encode(values: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> None:
    """Signs, 1 for negative elements, and the mean magnitude."""
    magnitude = values.abs()
    largest = float(magnitude.max()) if len(values) else 0.0
    refuse_infinite("sign", largest)
    scales[0] = largest * float((magnitude / (largest or 1.0)).mean(dtype=torch.float64)) if len(values) else 0.0
    _packed.pack(values < 0, BITS, codes)


def decode(codes: torch.Tensor, scales: torch.Tensor, values: torch.Tensor) -> None:
    """The mean magnitude with each sign is added to `values`."""
    negative = _packed.unpack(codes, BITS, len(values))
    values += scales[0] * (1 - 2 * negative.to(values.dtype))
