"""LeNet-5, a small ResNet with batch normalisation, and models of a quarter of their width: plans, samples, training.

The quarters are for short runs on two ranks: hundreds of gradients, text as input, units dropped at random.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import nn

from gradsync import optimizers, schedules, updates
from gradsync.costs import Linear, MessageCost
from gradsync.costs.contention import Contended
from gradsync.plan import Plan
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import data, models
from gradsync.runtime.compute import Forward, statistics
from gradsync.runtime.torchvision_operators import torchvision
from gradsync.transforms.step import Step

NAMES = ("lenet5", "resnet8")
RANKS = (("lenet5", 2), ("resnet8", 2), ("resnet8", 4))  # the gradients of LeNet-5 take most of the time
TURNS = 3  # momentum counts from the second turn on
LR, MOMENTUM = 0.01, 0.9
OPTIMIZER = optimizers.get("sgd", lr=LR, momentum=MOMENTUM)
BATCH = {"lenet5": 1, "resnet8": 4}  # the large convolutions of LeNet-5 take most of the time
SHAPES = {"lenet5": (1, 28, 28), "resnet8": (3, 16, 16)}
QUARTERS = {"densenet201_quarter": ("synthetic", 32), "bert_base_quarter": ("text", 16)}  # data, pixels or tokens
QUARTERS |= {"transformer_quarter": ("synthetic", 12)}
QUARTER_RANKS, QUARTER_TURNS = 2, 2
STATISTICS = "statistics:"  # what their names begin with
AT_ONCE = ("mgwfbp", "kway")  # one message at a time, and two
COST = Linear(2e-3, 2e-9)  # seconds, seconds a byte: chosen so that the schedules group these layers differently
SHARED = Contended(Linear(2e-3, 2e-7), 5 / 3)  # slow, and a message alone gets 0.6 of its link: two at once pay


def build(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The same model whenever it is called."""
    if name in models.MODELS:
        return models.build(name, 1).to(dtype)
    torch.manual_seed(1)
    block = torchvision().models.resnet.BasicBlock
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    body = [block(16, 16), block(16, 32, 2, _projection(16, 32)), block(32, 64, 2, _projection(32, 64))]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(dtype)


def _projection(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))


def forward(model: nn.Module, rank: int, name: str = "lenet5") -> Forward:
    return Forward(model, models.get(name).loss if name in QUARTERS else nn.functional.cross_entropy, rank)


@functools.cache
def _data(name: str) -> data.Data:
    """What ranks share of a quarter's data set, two samples each a turn."""
    source, size = QUARTERS[name]
    return data.load(source, model=name, size=size, batch=2, ranks=QUARTER_RANKS, seed=1)


def sample(name: str, rank: int, turn: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """The shard of `rank` in `turn`."""
    if name in QUARTERS:
        return data.shard(_data(name), turn, rank, dtype)
    rng = np.random.default_rng((rank, turn))
    images = torch.from_numpy(rng.normal(size=(BATCH[name], *SHAPES[name]))).to(dtype)
    return images, torch.from_numpy(rng.integers(0, 10, BATCH[name]))


@functools.cache
def load(name: str, dtype: str = "float32") -> Workload:
    """Its layers in the order in which autograd really produces their gradients."""
    model = build(name, torch.float32)
    order: list[str] = []
    for key, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, key=key: order.append(key))
    forward(model, 0, name)(0, *sample(name, 0, 0, torch.float32)).backward()
    width = getattr(torch, dtype).itemsize
    sizes = {key: parameter.numel() * width for key, parameter in model.named_parameters()}
    seconds = np.random.default_rng(5).exponential(2e-3, len(order))
    return Workload(
        name=name,
        forward_seconds=5e-3,
        layers=tuple(
            Layer(name=key, bytes=sizes[key], dtype=dtype, backward_seconds=float(second))
            for key, second in zip(order, seconds, strict=True)
        ),
        statistics=sum(buffer.numel() for buffer in statistics(model)),
    )


def options(schedule: str, name: str) -> dict[str, Any]:
    """The defaults; sizes that are meant for larger models are made to fit."""
    small = load(name).bytes // 4
    return {key: small for key in schedules.options(schedule) if key.endswith("_bytes")}


def plan(schedule: str, name: str, ranks: int, dtype: str = "float32", cost: MessageCost = COST, **step: Any) -> Plan:
    workload = load(name, dtype)
    chosen = schedules.messages(schedule, workload, cost, options(schedule, name))
    return updates.plan("ssgd", schedule, workload, chosen, ranks, optimizer=OPTIMIZER, step=Step(**step))


def reference(name: str, ranks: int, turns: int, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """Plain torch: gradients of the shards in turn, averaged, then SGD with momentum; statistics are rank 0's."""
    model = build(name, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for turn in range(turns):
        optimizer.zero_grad()
        kept: list[torch.Tensor] = []
        for rank in range(ranks):
            (forward(model, rank, name)(turn, *sample(name, rank, turn, dtype)) / ranks).backward()
            kept = kept or [buffer.clone() for buffer in model.buffers()]
        for buffer, value in zip(model.buffers(), kept, strict=True):
            buffer.copy_(value)
        optimizer.step()
    return trained(model)


def trained(model: nn.Module) -> dict[str, np.ndarray]:
    """Parameters and statistics by name."""
    values = {key: parameter.detach().numpy().copy() for key, parameter in model.named_parameters()}
    return values | statistics_of(model)


def statistics_of(model: nn.Module) -> dict[str, np.ndarray]:
    """Statistics by name."""
    buffers = ((key, value) for key, value in model.named_buffers() if value.is_floating_point())
    return {f"{STATISTICS}{key}": value.numpy().copy() for key, value in buffers}
