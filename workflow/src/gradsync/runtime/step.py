"""One forward and backward pass of one rank: where the model and the executor meet.

A turn has one, or one for each micro-batch.
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

        `number` counts passes over all turns: with one pass a turn it is the turn.
        """


class Step:
    """One forward and backward pass, as the model drives it."""

    def __init__(self, executor: Executor, ops: list[Any], turn: int, record: bool):
        self.executor, self.turn, self.record = executor, turn, record
        role = executor.role
        self.number = turn * role.passes + role.pass_of[ops[0].name]
        self.needs = {op.layer: op for op in ops if isinstance(op, Need)}
        self.order = [op for op in ops if isinstance(op, Ready)]
        self.asked: set[str | None] = set()
        self.by_tensor = {op.tensor: op for op in self.order}
        self.tensors = executor.plan.tensor
        self.arrived: set[str] = set()
        self.next = 0  # gradients become ready in the plan's order, whatever autograd's was
        self.forward: Need | None = None  # the layer whose forward is running
        self.since = executor.now()

    def run(self, compute: Compute) -> None:
        """Run it; a tensor that backward never reached counts as a zero gradient."""
        compute(self.number, self)
        self.backward()
        for layer in self.needs:
            if layer not in self.asked:
                raise RunError(
                    f"rank {self.executor.rank}, turn {self.turn}: the model never asked for "
                    f"{layer or 'its forward pass'}, which the plan holds back until its parameters are there"
                )
        for op in self.order:
            for tensor in [op.tensor] if op.tensor is not None else self.tensors:
                if tensor not in self.arrived:
                    self.executor.wait_for(op, self.turn)
                    if not op.adds:
                        self._place(op, tensor).zero_()
                    self.arrived.add(tensor)
        self._advance()

    def need(self, layer: str | None = None) -> None:
        """Block until forward of `layer` (None: of the whole model) may begin."""
        op = self.needs.get(layer)
        if op is not None:
            self.asked.add(layer)
            self.backward()
            self.executor.wait_for(op, self.turn)
            self.forward, self.since = op, self.executor.now()

    def backward(self) -> None:
        """Forward (of the last needed layer) is over."""
        if self.forward is not None:
            self.since = self.executor.finish(self.forward, self.turn, self.since, self.record)
            self.forward = None

    def ready(self, tensor: str, gradient: torch.Tensor) -> None:
        """Backward has produced `gradient` (any shape): it is copied to its place in the plan's buffer, or added."""
        op = self.by_tensor.get(tensor) or self.by_tensor.get(None)
        if op is None or tensor not in self.tensors:
            raise RunError(
                f"rank {self.executor.rank}: plan {self.executor.plan.name!r} has no tensor {tensor!r}: "
                "plan again for this model"
            )
        self.backward()
        self.executor.wait_for(op, self.turn)
        place = self._place(op, tensor)
        if op.adds:
            place.add_(gradient.reshape(-1))
        else:
            place.copy_(gradient.reshape(-1))
        self.arrived.add(tensor)
        self._advance()

    def _place(self, op: Ready, tensor: str) -> torch.Tensor:
        view = self.executor.views[op.name][1][0]
        return view if op.tensor is not None else view[self.tensors[tensor].start : self.tensors[tensor].stop]

    def _produced(self, op: Ready) -> bool:
        return len(self.arrived) == len(self.tensors) if op.tensor is None else op.tensor in self.arrived

    def _advance(self) -> None:
        while self.next < len(self.order) and self._produced(self.order[self.next]):
            self.since = self.executor.finish(self.order[self.next], self.turn, self.since, self.record)
            self.next += 1
