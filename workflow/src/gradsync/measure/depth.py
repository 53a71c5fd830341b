"""How many layers with weights a model has, and how many of them lie on its longest path: on its definition."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gradsync.runtime import models

WEIGHTED = (torch.conv2d, nn.functional.linear)


class Layers(NamedTuple):
    """Layers with weights: of each kind in the whole model, auxiliary heads too, and on the longest path."""

    convolutional: int
    fully_connected: int
    longest_path: int


class _Paths(TorchFunctionMode):
    """Notes how many layers with weights are behind every tensor that a function gives, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.behind: dict[int, tuple[torch.Tensor, int]] = {}  # by identity, which the tensor kept here makes unique

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        length = max((self._of(each) for each in tree_leaves((args, kwargs))), default=0) + (func in WEIGHTED)
        for tensor in tree_leaves(given):
            if isinstance(tensor, torch.Tensor):
                self.behind[id(tensor)] = (tensor, length)
        return given

    def _of(self, value: Any) -> int:
        return self.behind.get(id(value), (None, 0))[1]

    @property
    def longest(self) -> int:
        return max((length for _, length in self.behind.values()), default=0)


@cache
def layers(name: str) -> Layers:
    """The layers of a model of images at its full size; raises InputError for an unknown one."""
    with torch.device("meta"):
        model = models.get(name).build().train()  # auxiliary heads compute in training alone
        samples = models.blank(name)
        with _Paths() as paths:
            model(samples)
    kinds = [type(module) for module in model.modules()]
    return Layers(kinds.count(nn.Conv2d), kinds.count(nn.Linear), paths.longest)
