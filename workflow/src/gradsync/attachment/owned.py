"""Who applies gradients: an optimizer of torch, which finds them in `parameter.grad`, or the plan itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gradsync.attachment.fit import refuse_settings
from gradsync.attachment.refusal import refuse
from gradsync.plan import Plan
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.transforms.messages_alone import messages_alone


class Update(ABC):
    """What becomes of gradients."""

    def __init__(self, executor: Executor, parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer):
        self.executor, self.parameters, self.optimizer = executor, parameters, optimizer
        self.plan: Plan = executor.plan

    def begin(self, turn: int) -> None:  # noqa: B027  most have nothing to do
        """A turn begins."""

    @abstractmethod
    def taken(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """The gradient that is handed over to the plan."""

    @abstractmethod
    def backward_ended(self, used: Iterable[str]) -> None:
        """Backward is over; on some rank these tensors had a gradient."""

    def stepping(self) -> None:  # noqa: B027
        """The optimizer is about to make its step."""


class Owned(Update):
    """The optimizer is the user's: `parameter.grad` becomes a view of the sums, weighted as their mean is.

    Gradients are weighted on their way into the plan's buffer, as stock DDP does it: one pass over them.
    """

    def __init__(
        self,
        executor: Executor,
        parameters: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        sums: str,
        weight: float,
    ):
        super().__init__(executor, parameters, optimizer)
        self.weight = weight
        sent = self.plan.holding("gradient") or sums
        self.sent, self.sums = ({name: self._view(buffer, name) for name in parameters} for buffer in (sent, sums))

    def _view(self, buffer: str, name: str) -> torch.Tensor:
        tensor = self.plan.tensor[name]
        return self.executor.buffers[buffer][tensor.start : tensor.stop].view(self.parameters[name].shape)

    def taken(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """It is where the plan wants it."""
        assert parameter.grad is not None
        view = self.sent[name]
        torch.mul(parameter.grad, self.weight, out=view)
        if view.data_ptr() == self.sums[name].data_ptr():
            parameter.grad = view  # autograd's own is not needed any more
        return view

    def backward_ended(self, used: Iterable[str]) -> None:
        """A tensor that no rank has used keeps the gradient that it had: none, as a rule."""
        for name in used:
            self.parameters[name].grad = self.sums[name]


def summing(
    whole: Plan, parameters: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, groups: Groups
) -> Owned:
    """The messages of a plan alone, with an executor that begins no turn yet. Collective.

    Raises RunError if ranks hold different plans.
    """
    alone = messages_alone(whole)
    return Owned(prepare(alone.plan, dist.get_rank(), groups), parameters, optimizer, alone.sums, alone.weight)


class Unread(torch.Tensor):
    """Stands for a gradient that is on its way: whoever reads it is refused."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse it."""
        refuse(
            "the plan applies gradients itself, while others are on their way: they can't be read, clipped or scaled "
            "(clip_grad_norm_, GradScaler): take a scheme with update ssgd, mgwfbp for instance"
        )


class Planned(Update):
    """The plan updates parameters itself: they lie in its buffer, and the optimizer's step finds no gradients.

    `group` is that of the optimizer: its learning rate at the beginning of a turn is that of the turn.
    """

    def __init__(
        self,
        executor: Executor,
        parameters: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        group: dict[str, Any],
        rate: float,
    ):
        super().__init__(executor, parameters, optimizer)
        self.group, self.rate, self.reference = group, rate, dict(group)
        self.rates: dict[int, float] = {}
        self.owed = False  # the optimizer's step, which comes after each backward that is sent
        self.places = {name: parameter.data_ptr() for name, parameter in parameters.items()}
        self.unread = {name: _unread(parameter) for name, parameter in parameters.items()}
        executor.rate = self._rate

    def _rate(self, turn: int) -> float:
        return self.rates[turn]

    def begin(self, turn: int) -> None:
        """The rate of a turn is that of its beginning."""
        if self.owed:
            refuse(
                f"plan {self.plan.name!r} has applied the gradients of the last backward, and optimizer.step() was "
                "not called: it follows each backward outside of no_sync(); to leave a step out take a scheme with "
                "update ssgd"
            )
        for name, parameter in self.parameters.items():
            if parameter.data_ptr() != self.places[name]:
                refuse(f"parameter {name!r} was moved after attach (to, load_state_dict(assign=True)): attach last")
        self.rates[turn] = float(self.group["lr"]) / self.rate
        self.rates.pop(turn - 2, None)

    def taken(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """It leaves the parameter."""
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        return gradient

    def backward_ended(self, used: Iterable[str]) -> None:
        """Until the optimizer's step nobody may take gradients for what they are not."""
        self.owed = True
        for name, parameter in self.parameters.items():
            parameter.grad = self.unread[name]

    def stepping(self) -> None:
        """The step has nothing to do."""
        for parameter in self.parameters.values():
            parameter.grad = None
        if not self.owed:
            return
        self.owed = False
        refuse_settings(self.plan, self.group, self.reference)
        turn = self.executor.turn - 1
        if float(self.group["lr"]) / self.rate != self.rates[turn]:
            refuse(
                f"plan {self.plan.name!r} applies gradients from backward on, at the learning rate of then, "
                f"{self.rates[turn] * self.rate:g}; it was set to {self.group['lr']:g} before the step: set it after"
            )


def _unread(parameter: nn.Parameter) -> torch.Tensor:
    one = torch.zeros(1, dtype=parameter.dtype, device=parameter.device)
    as_unread: Callable[..., torch.Tensor] = one.expand(parameter.shape).as_subclass
    return as_unread(Unread)
