"""Which parts of a model FSDP2 gathers one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradsync.runtime import models
from gradsync.runtime.peers import KINDS
from gradsync.runtime.sharded_blocks import blocks

# of each model the number of blocks, and the share of its parameters that is in none, at the most
BLOCKS = {
    "lenet5": (4, 0.0),
    "resnet50": (16, 0.1),
    "vgg19": (19, 0.0),
    "googlenet": (14, 0.1),
    "densenet201_quarter": (98, 0.4),
    "inceptionv4_quarter": (22, 0.2),
    "bert_base_quarter": (12, 0.6),
    "transformer_quarter": (12, 0.7),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_what_one_would_shard(name):
    with torch.device("meta"):
        model = models.build(name, 0)
    count, outside = BLOCKS[name]
    units = blocks(model)
    inside = {id(parameter): parameter.numel() for unit in units for parameter in unit.parameters()}
    whole = sum(parameter.numel() for parameter in model.parameters())
    assert len(units) == count
    assert 1 - sum(inside.values()) / whole <= outside
    assert len(inside) == sum(1 for unit in units for _ in unit.parameters())  # no parameter is in two
    for unit in units:
        assert not any(other is not unit and other in set(unit.modules()) for other in units)


def test_single_layers_are_blocks_only_if_there_is_nothing_else():
    block = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())
    alone = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert blocks(alone) == [alone[0], alone[2]]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = block

    first, second = Block(), Block()
    net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sequential(first, second), nn.Linear(1, 1))
    assert blocks(net) == [first, second]


def test_each_kind_has_a_file():
    assert set(KINDS) == {"ddp", "zero", "fsdp2"}
