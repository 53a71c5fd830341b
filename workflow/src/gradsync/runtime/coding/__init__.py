"""Codes for torch: what compressors write of a message, and what that stands for.

On a processor a code is made by the NumPy reading of its compressor, which shares the memory of the tensors, so that a
rank writes bit for bit what the oracle does. On a GPU, and of types that NumPy doesn't have, a module here of the same
name is used, with the same functions and tensors instead of arrays (a test compares them):

    encode(values, codes, scales, **options)
    decode(codes, scales, values, **options)
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from gradsync import compressors
from gradsync.kernels import DECODE, ENCODE
from gradsync.kernels._code import decoder, encoder

OF_NUMPY = (torch.float64, torch.float32, torch.float16)


def kernels() -> dict[str, Callable[..., None]]:
    """Name -> the kernel, of every compressor that makes codes."""
    executed = {}
    for name in compressors.coding():
        reference, module = compressors.get(name), importlib.import_module(f"{__name__}.{name}")
        encode, decode = (_either(getattr(reference, each), getattr(module, each)) for each in ("encode", "decode"))
        executed[f"{ENCODE}{name}"], executed[f"{DECODE}{name}"] = encoder(encode, decode), decoder(name, decode)
    return executed


def _either(by_numpy: Callable[..., None], by_torch: Callable[..., None]) -> Callable[..., None]:
    """The reading that fits the tensors."""

    @functools.wraps(by_numpy)
    def chosen(*tensors: torch.Tensor, **options: Any) -> None:
        if all(each.device.type == "cpu" and each.dtype in (*OF_NUMPY, torch.uint8) for each in tensors):
            by_numpy(*(each.numpy() for each in tensors), **options)
        else:
            by_torch(*tensors, **options)

    return chosen
