"""One forward and backward pass of one rank, in which the model and the executor meet.

A turn has one pass, or one for each micro-batch. What the plan puts between its needs and gradients on the same lane is
done when its place in the plan's order has come, by the thread that drives the pass (the caller's, or autograd's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from gradsync.errors import RunError
from gradsync.plan import Need, Ready

if TYPE_CHECKING:
    from gradsync.runtime.execute import Executor


class Compute(Protocol):
    """Forward and backward of one rank."""

    def __call__(self, number: int, step: Step) -> None:
        """One pass: calls `step.need` before forward, `step.backward` between, `step.ready` for each gradient.

        If the plan holds back the forward of single layers (`step.needs`), it calls `step.need` before each of them.
        `number` counts passes over all turns: with one pass per turn it is the turn.
        """


class Step:
    """One forward and backward pass, as the model drives it."""

    def __init__(self, executor: Executor, ops: list[Any], turn: int, record: bool):
        self.executor, self.turn, self.record, self.ops = executor, turn, record, ops
        role = executor.role
        self.number = turn * role.passes + role.pass_of[ops[0].name]
        self.needs = {op.layer: op for op in ops if isinstance(op, Need)}
        self.by_tensor = {op.tensor: op for op in ops if isinstance(op, Ready)}
        self.tensors = executor.plan.tensor
        self.held: dict[str, torch.Tensor | None] = {}  # gradients that came before their place in the order
        self.placed: set[str] = set()
        self.next = 0  # of `ops`: gradients become ready in the plan's order, whatever autograd's was
        self.forward: Need | None = None  # the layer whose forward is running
        self.since = executor.now()

    def run(self, compute: Compute) -> None:
        """Run it from its beginning to its end."""
        compute(self.number, self)
        self.finish()

    def finish(self) -> None:
        """Backward is over: a tensor that it never reached counts as a zero gradient."""
        self.backward()
        self.held |= dict.fromkeys(name for name in self.tensors if name not in self.placed and name not in self.held)
        self._advance()
        if self.next < len(self.ops):
            layer = getattr(self.ops[self.next], "layer", None)
            raise RunError(
                f"rank {self.executor.rank}, turn {self.turn}: the model never asked for "
                f"{layer or 'its forward pass'}, which the plan holds back until its parameters are there"
            )

    def need(self, layer: str | None = None) -> bool:
        """Block until forward of `layer` (None: of the whole model) may begin; returns whether it had to wait."""
        op = self.needs.get(layer)
        if op is None:
            return False
        self.backward()
        self._advance()
        if self.next >= len(self.ops) or self.ops[self.next] is not op:
            raise RunError(
                f"rank {self.executor.rank}, turn {self.turn}: the model asks for {layer or 'its forward pass'} in "
                f"another order than plan {self.executor.plan.name!r} has: measure the layers and plan again"
            )
        waited = self.executor.wait_for(op, self.turn)
        self.forward, self.since = op, self.executor.now()
        return waited

    def backward(self) -> None:
        """Forward (of the last needed layer) is over."""
        if self.forward is not None:
            self.since = self.executor.finish(self.forward, self.turn, self.since, self.record)
            self.forward = None
            self.next += 1

    def ready(self, tensor: str, gradient: torch.Tensor) -> None:
        """Backward has produced `gradient` (any shape): it is copied to its place in the plan's buffer, or added."""
        if tensor not in self.tensors or not (tensor in self.by_tensor or None in self.by_tensor):
            raise RunError(
                f"rank {self.executor.rank}: plan {self.executor.plan.name!r} has no tensor {tensor!r}: "
                "plan again for this model"
            )
        self.backward()
        self.held[tensor] = gradient
        self._advance()

    def _advance(self) -> None:
        """Do what can be done in the plan's order, up to what the model has yet to reach."""
        while self.next < len(self.ops) and not isinstance(op := self.ops[self.next], Need):
            if not isinstance(op, Ready):
                self.executor.do(op, self.turn, self.record)
                self.since = self.executor.now()
            elif self._placed(op):
                self.since = self.executor.finish(op, self.turn, self.since, self.record)
            else:
                return
            self.next += 1

    def _placed(self, op: Ready) -> bool:
        """Copy the gradients of `op` that have come to their place; whether that was all of them."""
        names = [op.tensor] if op.tensor is not None else [name for name in self.held if name not in self.placed]
        for name in names:
            if name in self.held:
                self.executor.wait_for(op, self.turn)
                self._place(op, name, self.held.pop(name))
                self.placed.add(name)
        return len(self.placed) == len(self.tensors) if op.tensor is None else op.tensor in self.placed

    def _place(self, op: Ready, tensor: str, gradient: torch.Tensor | None) -> None:
        view = self.executor.views[op.name][1][0]
        place = view if op.tensor is not None else view[self.tensors[tensor].start : self.tensors[tensor].stop]
        if gradient is None:
            if not op.adds:
                place.zero_()
        elif op.adds:
            place.add_(gradient.reshape(-1))
        elif gradient.data_ptr() != place.data_ptr():  # else whoever has computed it has put it there
            place.copy_(gradient.reshape(-1))
        if self.executor.carried is not None and not op.adds:  # once a turn, with its first micro-batch
            place.add_(self.executor.carried[self.tensors[tensor].start : self.tensors[tensor].stop])
