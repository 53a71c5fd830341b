"""Symbols of a few bits in bytes, as `gradsync.compressors._packed` lays them out, for tensors."""

from __future__ import annotations

import torch

from gradsync.compressors._packed import TOGETHER, length


def pack(symbols: torch.Tensor, bits: int, packed: torch.Tensor) -> None:
    """Write symbols of 1 to 8 bits; the rest of `packed` becomes 0."""
    needed = length(len(symbols), bits)
    packed[needed:] = 0
    packed[:needed] = _regrouped(symbols, bits, 8)[:needed]


def unpack(packed: torch.Tensor, bits: int, symbols: int) -> torch.Tensor:
    """The first so many symbols.  # (symbols,)"""
    return _regrouped(packed[: length(symbols, bits)], 8, bits)[:symbols]


def _regrouped(parts: torch.Tensor, width: int, other: int) -> torch.Tensor:
    """Numbers of `width` bits one behind the other, read as numbers of `other` bits; one of the two is 8."""
    if width == other:
        return parts
    count, bits = (TOGETHER, width) if other == 8 else (other, other)  # of a word; a symbol's bits
    words = torch.zeros(-(-len(parts) // count) * count, dtype=torch.int64, device=parts.device)
    words[: len(parts)] = parts
    shifts = width * torch.arange(count, device=parts.device)
    whole = (words.view(-1, count) << shifts).sum(dim=1, keepdim=True)
    shifts = other * torch.arange(TOGETHER * bits // other, device=parts.device)
    return (whole >> shifts & ((1 << other) - 1)).to(torch.uint8).flatten()
