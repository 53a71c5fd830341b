"""Tensors of which each rank holds a part, told apart without importing what makes them.

torch.distributed.tensor brings SymPy and torch.distributed.optim the scripting compiler: together they take as long to
import as torch itself, and most launches need neither.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import torch

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_distributed(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is a DTensor: none is, before somebody has imported its module."""
    made = sys.modules.get("torch.distributed.tensor")
    return made is not None and isinstance(tensor, made.DTensor)
