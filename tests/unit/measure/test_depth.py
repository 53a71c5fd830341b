"""Layers with weights are counted by kind, and along the longest path."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.measure import depth
from gradsync.runtime import models
from gradsync.runtime.models.spec import Model


class Forked(nn.Module):
    """Two layers on one way, one on the other, one behind both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.short, self.last = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        long = self.second(torch.relu(self.first(x.flatten(1)[:, :4])))
        return self.last(torch.cat([long, self.short(long.detach() * 0)]).sum(0, keepdim=True))


def test_the_longest_of_several_paths_counts(monkeypatch):
    made_up = Model(Forked, (1, 2, 2), 4, smallest=2, smallest_alone=2)
    monkeypatch.setitem(models.MODELS, "forked", made_up)
    assert depth.layers("forked") == (0, 4, 4)


@pytest.mark.parametrize(("name", "wanted"), [("lenet5", (2, 2, 4)), ("alexnet", (5, 3, 8)), ("resnet18", (20, 1, 18))])
def test_models_have_the_layers_that_they_are_named_after(name, wanted):
    assert depth.layers(name) == wanted  # a residual network's shortcuts have convolutions, too


def test_an_unknown_model_is_refused():
    with pytest.raises(InputError, match="model 'zfnet' does not exist"):
        depth.layers("zfnet")
