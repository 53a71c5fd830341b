"""Computation replayed: a model whose forward and backward wait as long as those of a workload took.

It is an ordinary `nn.Module` with the workload's gradients, in its order and of its sizes, so that plans and stock DDP
train it like any other; it waits instead of computing, so that more ranks than cores don't slow one another down.
Forward takes its layers in the workload's forward order, which need not be the reverse of that of backward.

What it learns is simple but real: each parameter is drawn to a number that the samples of a rank have, so that a
gradient that is lost, or summed twice, shows. Each begins at a random number of its own: a selection of the largest
of gradients that are all equal takes 40 times as long as of real ones, since no threshold tells them apart.

    loss = sum_j (w_j - s)^2 / 2,  s = mean of the rank's samples;  gradient = w - s

The next wait hides what a rank's processor does between two waits (hooks, copies, launching messages), as on a GPU,
whose host runs ahead, and not as on a processor that computes. `Replayed.absorbed_seconds` measures how much that was,
as it would make plans of many messages look better than they are on processors. No wait hides the time in which
forward had to wait for parameters (`Replayed.hold`).

Differs: the value that is returned as the loss sums the first element of each tensor alone, which costs nothing.
"""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.plan.workload import Workload

PREFIX = "replay:"
AHEAD = "layer by layer"  # no layer of a model has such a name


class _Clock:
    """Waits that follow one another without a gap: if a wait was late, the next one is as much shorter.

    `absorbed` counts the seconds between two waits that the second one hid.
    """

    def __init__(self) -> None:
        self.until = self.woken = self.absorbed = 0.0

    def start(self) -> None:
        self.until = self.woken = time.perf_counter()

    def wait(self, seconds: float) -> None:
        self.until += seconds
        now = time.perf_counter()
        self.absorbed += max(0.0, min(now, self.until) - self.woken)
        if (left := self.until - now) > 0:
            time.sleep(left)
        self.woken = time.perf_counter()


class _Memory(dict[int, torch.Tensor]):
    """Gradients by layer, kept from turn to turn: the kernel would have to clear pages of new ones during a message.

    A model's copies share it, as contenders take turns and each forgets its gradients before its next one.
    """

    def __deepcopy__(self, _: dict[int, Any]) -> _Memory:
        return self

    def of(self, number: int, weight: torch.Tensor) -> torch.Tensor:
        """A tensor like `weight`, of any values; another one each time, of the same memory."""
        kept = self.get(number)
        if kept is None or (kept.dtype, kept.device) != (weight.dtype, weight.device):
            kept = self[number] = torch.empty_like(weight)
        return kept.detach()  # autograd takes over a gradient that nobody else holds, and copies any other


class _Ahead(nn.Module):
    """Forward of one layer after the other: a call is a wait and the layer's part of the loss, outside the graph.

    It is a module so that hooks come before each layer, as in models that compute.
    """

    def forward(self, weight: torch.Tensor, sample: torch.Tensor, replayed: Replayed, number: int) -> torch.Tensor:
        replayed.clock.wait(replayed.pace * replayed.forward_seconds[number])
        return (weight.detach()[0] - sample) ** 2 / 2


class _Behind(torch.autograd.Function):
    """Backward of one layer: a link of a chain, which backward follows from the last link that was made to the first.

    Its value is zero, and making it reads no parameter.
    """

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, weight: torch.Tensor, sample: torch.Tensor, replayed: Replayed, number: int
    ) -> torch.Tensor:
        context.save_for_backward(weight, sample)
        context.replayed, context.number = replayed, number
        return torch.zeros_like(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        weight, sample = context.saved_tensors
        replayed: Replayed = context.replayed
        if context.number == 0:
            replayed.clock.start()
        # autograd adds to what an earlier micro-batch left; the oracle, which waits for nothing, keeps its gradients
        reused = replayed.pace > 0 and weight.grad is None
        memory = replayed.memory.of(context.number, weight) if reused else torch.empty_like(weight)
        produced = torch.sub(weight, sample, out=memory)
        if gradient != 1:
            produced.mul_(gradient)
        del memory
        replayed.clock.wait(replayed.pace * replayed.backward_seconds[context.number])
        return gradient, produced, None, None, None


class Replayed(nn.Module):
    """Parameters (elements,) named as the workload's layers; samples of any shape in, the loss (a scalar) out.

    For each second of the workload it waits `pace` seconds; 0 waits for nothing.
    """

    def __init__(self, workload: Workload, pace: float = 1.0):
        super().__init__()
        if workload.unit != "float32":
            raise InputError(f"workload {workload.name!r}: only float32 gradients can be replayed, not {workload.unit}")
        layers = workload.layers
        self.pace, self.clock, self.memory = pace, _Clock(), _Memory()
        self.backward_seconds = [layer.backward_seconds for layer in layers]
        self.forward_seconds = workload.forward_by_layer().tolist()
        self.names = [layer.name for layer in layers]
        self.forward_order = workload.forward_order()
        self.add_module(AHEAD, _Ahead())
        draws = torch.Generator().manual_seed(0)  # the same on all ranks
        for layer in reversed(layers):
            *path, name = layer.name.split(".")
            module: nn.Module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(name, nn.Parameter(torch.randn(int(layer.parameters), generator=draws)))

    def absorbed_seconds(self) -> float:
        """Host time that waits have hidden since the last call."""
        absorbed, self.clock.absorbed = self.clock.absorbed, 0.0
        return absorbed

    def hold(self) -> None:
        """Called in forward if it had to wait for parameters until now: the wait of the next layer hides none of it."""
        self.clock.start()

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """The loss; it waits for forward in this call, and for backward in backward."""
        self.clock.start()
        sample = samples.mean()
        loss, chain = torch.zeros_like(sample), torch.zeros_like(sample)
        backwards = reversed(range(len(self.names)))  # layers are in backward order
        ahead = self.get_submodule(AHEAD)
        for number, made in zip(self.forward_order, backwards, strict=True):
            loss = loss + ahead(self.get_parameter(self.names[number]), sample, self, number)
            chain = _Behind.apply(chain, self.get_parameter(self.names[made]), sample, self, made)
        return loss + chain


def is_replay(model: str) -> bool:
    """Whether the name of a model stands for the replay of a workload in a file."""
    return model.startswith(PREFIX)


def workload_of(model: str) -> Workload:
    """The workload of `replay:FILE`; raises InputError if the file holds none."""
    return Workload.load(Path(model.removeprefix(PREFIX)))


def without_waiting(model: nn.Module) -> nn.Module:
    """A copy that computes the same and waits for nothing; any other model as it is."""
    if not isinstance(model, Replayed):
        return model
    copied = copy.deepcopy(model)
    copied.pace = 0.0
    return copied
