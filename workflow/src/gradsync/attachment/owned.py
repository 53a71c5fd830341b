"""Who applies gradients: an optimizer of torch, which finds them in `parameter.grad`, or the plan itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gradsync.attachment.fit import refuse_settings
from gradsync.attachment.refusal import refuse
from gradsync.attachment.scale import Scale
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
        self.explained: Callable[[], AbstractContextManager[None]] = nullcontext  # around what waits for lanes

    def begin(self, turn: int) -> None:  # noqa: B027  most have nothing to do
        """A turn begins."""

    def backward_begins(self) -> None:  # noqa: B027
        """The first gradient of a backward has come."""

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


LOOKS = tuple(getattr(torch.Tensor, name).__get__ for name in ("device", "dtype", "is_sparse"))
UNSCALES = torch._amp_foreach_non_finite_check_and_unscale_  # what a GradScaler has for gradients, and for nothing else


class Unread(torch.Tensor):
    """Stands for a gradient that is on its way: whoever reads it is refused, but a GradScaler that looks for infinity.

    `checked` writes whether there is any on some rank.
    """

    checked: Callable[[torch.Tensor], None]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse it."""
        if function in LOOKS:
            return super().__torch_function__(function, types, args, kwargs)
        if function is UNSCALES:
            gradients, found_inf, _ = args
            return gradients[0].checked(found_inf)
        refuse(
            "the plan applies gradients itself, while others are on their way: they can't be read or clipped "
            "(clip_grad_norm_): take a plan that clips (--clip-norm), or a scheme with update ssgd, mgwfbp for instance"
        )


class Planned(Update):
    """The plan updates parameters itself: they lie in its buffer, and the optimizer's step finds no gradients.

    `group` is that of the optimizer: its learning rate at the beginning of a turn is that of the turn. `scale`: the
    loss is multiplied by, if it is.
    """

    def __init__(
        self,
        executor: Executor,
        parameters: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        group: dict[str, Any],
        rate: float,
        scale: Scale | None = None,
    ):
        super().__init__(executor, parameters, optimizer)
        self.group, self.rate, self.reference, self.scale = group, rate, dict(group), scale
        self.looked = False  # whether torch's GradScaler has looked for infinity since the last backward
        self.rates: dict[int, float] = {}
        self.owed = False  # the optimizer's step, which comes after each backward that is sent
        self.places = {name: parameter.data_ptr() for name, parameter in parameters.items()}
        self.unread = {name: _unread(parameter, self._checked) for name, parameter in parameters.items()}
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

    def backward_begins(self) -> None:
        """The scale of the loss is what the scaler has now."""
        if self.scale is not None:
            self.scale.begin()

    def _checked(self, found_inf: torch.Tensor) -> None:
        """Write whether the plan leaves the step out, as it does on all ranks if a gradient is infinite on one."""
        if self.scale is None:
            refuse(
                f"plan {self.plan.name!r} applies gradients itself, and knows of no loss scale: give "
                "attach(.., scaler=) the GradScaler, or take a scheme with update ssgd"
            )
        with self.explained():
            skipped = self.scale.skipped()
        self.looked = True
        if skipped:
            found_inf.fill_(1.0)
            self.owed = False  # nobody will ask for the step
            self._leave_gradients()

    def _leave_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def taken(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """It leaves the parameter."""
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        return gradient

    def backward_ended(self, used: Iterable[str]) -> None:
        """Until the optimizer's step nobody may take gradients for what they are not."""
        self.owed, self.looked = True, False
        for name, parameter in self.parameters.items():
            parameter.grad = self.unread[name]

    def stepping(self) -> None:
        """The step has nothing to do."""
        self._leave_gradients()
        if not self.owed:
            return
        if self.scale is not None and not self.looked:
            refuse(f"plan {self.plan.name!r} was attached with a GradScaler: step by scaler.step(optimizer)")
        self.owed = False
        refuse_settings(self.plan, self.group, self.reference)
        turn = self.executor.turn - 1
        if float(self.group["lr"]) / self.rate != self.rates[turn]:
            refuse(
                f"plan {self.plan.name!r} applies gradients from backward on, at the learning rate of then, "
                f"{self.rates[turn] * self.rate:g}; it was set to {self.group['lr']:g} before the step: set it after"
            )


def _unread(parameter: nn.Parameter, checked: Callable[[torch.Tensor], None]) -> torch.Tensor:
    one = torch.zeros(1, dtype=parameter.dtype, device=parameter.device)
    as_unread: Callable[..., Unread] = one.expand(parameter.shape).as_subclass
    unread = as_unread(Unread)
    unread.checked = checked
    return unread
