"""Symbols of a few bits, one behind the other in bytes: eight of them take as many bytes as one has bits."""

from __future__ import annotations

from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
TOGETHER = 8  # symbols that fill whole bytes
LONG = np.dtype("<u8")  # of eight bytes, the first of them in the lowest bits


def length(symbols: Any, bits: int) -> Any:
    """Bytes that so many symbols take."""
    return -(-symbols * bits // 8)


def pack(symbols: np.ndarray[Any, Any], bits: int, packed: Bytes) -> None:
    """Write symbols of 1 to 8 bits; the rest of `packed` becomes 0."""
    needed = length(len(symbols), bits)
    packed[needed:] = 0
    if bits == 1:
        packed[:needed] = np.packbits(symbols, bitorder="little")
        return
    per_word, word = _words(bits)
    padded = np.zeros((-(-len(symbols) // per_word), per_word), np.uint8)
    padded.ravel()[: len(symbols)] = symbols
    words = np.zeros(len(padded), word)
    for place in range(per_word):
        words |= padded[:, place].astype(word) << word.type(bits * place)
    whole = words.view(np.uint8).reshape(len(padded), word.itemsize)
    packed[:needed] = whole[:, : length(per_word, bits)].ravel()[:needed]


def unpack(packed: Bytes, bits: int, symbols: int) -> Bytes:
    """The first so many symbols.  # (symbols,)"""
    if bits == 1:
        return np.unpackbits(packed, count=symbols, bitorder="little")
    per_word, word = _words(bits)
    count, width = -(-symbols // per_word), length(per_word, bits)
    padded = np.zeros(count * width, np.uint8)
    padded[: length(symbols, bits)] = packed[: length(symbols, bits)]
    whole = np.zeros((count, word.itemsize), np.uint8)
    whole[:, :width] = padded.reshape(count, width)
    words, parts = whole.view(word).ravel(), np.empty((count, per_word), np.uint8)
    for place in range(per_word):
        parts[:, place] = words >> word.type(bits * place) & word.type((1 << bits) - 1)
    return parts.ravel()[:symbols]


def _words(bits: int) -> tuple[int, np.dtype[Any]]:
    """How many symbols are put together at a time, into numbers of which type."""
    return (8 // bits, np.dtype(np.uint8)) if 8 % bits == 0 else (TOGETHER, LONG)
