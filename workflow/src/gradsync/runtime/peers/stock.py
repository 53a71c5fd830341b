"""What torch's own ways to train in parallel have in common: their turns, losses, loss scale and checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from gradsync.configuration.peers import Peer
from gradsync.learning_rates import UNCHANGED, LearningRate
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.runtime.compute import FIRST_LOSS_SCALE, Forward, Sample
from gradsync.runtime.contenders import Contender
from gradsync.runtime.distributed_tensors import is_distributed
from gradsync.runtime.group import Groups, settle
from gradsync.runtime.losses import Losses
from gradsync.runtime.torch_optimizers import named


class Stock(Contender):
    """A peer on the device of `groups`; `plans` are those of the launch, by name. Collective.

    A turn has `accumulate` micro-batches; gradients are clipped to `clip_norm` (None: they are not). With `statistics`
    those of batch normalisation are rank 0's for all ranks. The optimizer is torch's own where it has one;
    `rate` multiplies its rate.
    """

    wrapped: torch.nn.Module  # what trains: calling it is a collective

    def __init__(
        self,
        peer: Peer,
        forward: Forward,
        sample: Sample,
        plans: dict[str, Plan],
        groups: Groups | None = None,
        *,
        optimizer: Optimizer,
        rate: LearningRate = UNCHANGED,
        statistics: bool = True,
        accumulate: int = 1,
        clip_norm: float | None = None,
    ):
        self.name, self.peer, self.sample, self.rank = peer.name, peer, sample, forward.rank
        self.statistics, self.accumulate, self.clip_norm = statistics, accumulate, clip_norm
        self.model = forward.model
        groups = groups or Groups()
        self.device, self.group = groups.device, groups.stock()
        self.wrapped = self._wrapped(plans)
        self.forward = Forward(self.wrapped, forward.loss, forward.rank, forward.seed, forward.precision)
        name, arguments = optimizer.torch
        self.optimizer = self._optimizer(named(name), dict(arguments))
        self.rate, self.rates = rate, self._scheduled(rate, 0)
        self.scaler = torch.amp.GradScaler(
            self.device.kind, init_scale=FIRST_LOSS_SCALE, enabled=forward.precision == "float16"
        )
        self._losses = Losses(
            *(forward.rank, self.name),
            scaled=self.scaler.is_enabled(),
            queued=self.device.queued,
            passes=accumulate,
        )
        self.losses = self._losses.values
        self.turn = 0

    @abstractmethod
    def _wrapped(self, plans: dict[str, Plan]) -> torch.nn.Module:
        """`model` as torch trains it on all ranks."""

    def _optimizer(self, kind: type[torch.optim.Optimizer], arguments: dict[str, Any]) -> torch.optim.Optimizer:
        return kind(self.wrapped.parameters(), **arguments)

    def _scheduled(self, rate: LearningRate, turn: int) -> LambdaLR | None:
        """torch's scheduler of this rate, before that turn."""
        return None if rate.constant else LambdaLR(self.optimizer, rate, last_epoch=turn - 1)

    @abstractmethod
    def _unsent(self) -> AbstractContextManager[object]:
        """Inside, gradients only add up on each rank."""

    def _begin(self) -> None:
        """Called before the first forward of a turn."""

    def run(self, turns: int) -> list[float]:
        """Train one block."""
        self.device.synchronize()
        ends = []
        for turn in range(self.turn, self.turn + turns):
            self.optimizer.zero_grad(set_to_none=True)
            self._begin()
            for part in range(self.accumulate):
                # nothing is sent before the last micro-batch
                with nullcontext() if part == self.accumulate - 1 else self._unsent():
                    self._pass(turn, turn * self.accumulate + part)
            if self.clip_norm is not None:
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.wrapped.parameters(), self.clip_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.rates is not None:
                self.rates.step()
            ends.append(self.device.mark())
        settle(self.device)
        self._losses.read()
        self.turn += turns
        return self.device.instants(ends)

    def _pass(self, turn: int, number: int) -> None:
        images, labels = self.sample(number)
        loss = self.forward(number, images, labels)
        self.scaler.scale(loss / self.accumulate if self.accumulate > 1 else loss).backward()
        self._losses.take(turn, loss)

    def parameters(self) -> dict[str, torch.Tensor]:
        """The model's own parameters, flattened."""
        named = self.model.named_parameters()
        return {name: parameter.detach().reshape(-1) for name, parameter in named if parameter.requires_grad}

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """What results tell of its messages, once it has trained."""

    def held_bytes(self) -> int:
        """Parameters, and what the optimizer holds of them, that this rank keeps from turn to turn."""
        momentum = (value for state in self._states().values() for value in state.values())
        return sum(_bytes(each) for each in (*self.wrapped.parameters(), *momentum) if isinstance(each, torch.Tensor))

    def _states(self) -> dict[Any, dict[str, Any]]:
        """By parameter: what the optimizer keeps of it on this rank."""
        return self.optimizer.state

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Turn, loss scale and the model's buffers, and what its kind keeps besides."""
        alike, own = self._kept()
        return (
            {"turn": self.turn, "scaler": self.scaler.state_dict(), **alike},
            {"buffers": dict(self.model.named_buffers()), **own},
        )

    @abstractmethod
    def _kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what all ranks hold alike, this rank's own) of parameters and momentum."""

    def restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """Copy the state into the model that trains."""
        self._rehearse()
        with torch.no_grad():
            self._restore(alike, own)
            for name, buffer in self.model.named_buffers():
                buffer.copy_(own["buffers"][name])
        self.losses.clear()
        self.turn = alike["turn"]
        self.rates = self._scheduled(self.rate, self.turn)
        self.scaler.load_state_dict(alike["scaler"])

    def _rehearse(self) -> None:
        """Called before a state is restored, for what torch makes in the first turns."""

    @abstractmethod
    def _restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """Copy what `_kept` gave to where it was."""


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor, on the same memory; all of it unless it is sharded."""
    return tensor.to_local() if is_distributed(tensor) else tensor


def _bytes(tensor: torch.Tensor) -> int:
    return local(tensor).numel() * tensor.element_size()
