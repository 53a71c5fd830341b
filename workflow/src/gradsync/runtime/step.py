"""One forward and backward pass of one rank: where the model and the executor meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from gradsync.errors import RunError
from gradsync.plan import Need, Ready

if TYPE_CHECKING:
    from gradsync.runtime.execute import Executor


class Compute(Protocol):
    """Forward and backward of one rank."""

    def __call__(self, turn: int, step: Step) -> None:
        """One turn: calls `step.need` before forward, `step.backward` between, `step.ready` for each gradient."""


class Step:
    """One forward and backward pass, as the model drives it."""

    def __init__(self, executor: Executor, ops: list[Any], turn: int, record: bool):
        self.executor, self.turn, self.record = executor, turn, record
        self.needs = {op.layer: op for op in ops if isinstance(op, Need)}
        self.order = [op for op in ops if isinstance(op, Ready)]
        self.asked: set[str | None] = set()
        self.by_tensor = {op.tensor: op for op in self.order}
        self.arrived: set[str] = set()
        self.next = 0  # gradients become ready in the plan's order, whatever autograd's was
        self.forward: Need | None = None  # the layer whose forward is running
        self.since = executor.now()

    def run(self, compute: Compute) -> None:
        """Run it; a tensor that backward never reached counts as a zero gradient."""
        compute(self.turn, self)
        self.backward()
        for layer in self.needs:
            if layer not in self.asked:
                raise RunError(
                    f"rank {self.executor.rank}, turn {self.turn}: the model never asked for "
                    f"{layer or 'its forward pass'}, which the plan holds back until its parameters are there"
                )
        for op in self.order:
            if op.tensor not in self.arrived:
                self.executor.wait_for(op, self.turn)
                self.executor.views[op.name][1][0].zero_()
                self.arrived.add(op.tensor)
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
        """Backward has produced `gradient` (any shape), which is copied to its place in the plan's buffer."""
        op = self.by_tensor.get(tensor)
        if op is None:
            raise RunError(
                f"rank {self.executor.rank}: plan {self.executor.plan.name!r} has no tensor {tensor!r}: "
                "plan again for this model"
            )
        self.backward()
        self.executor.wait_for(op, self.turn)
        self.executor.views[op.name][1][0].copy_(gradient.reshape(-1))
        self.arrived.add(tensor)
        self._advance()

    def _advance(self) -> None:
        while self.next < len(self.order) and self.order[self.next].tensor in self.arrived:
            self.since = self.executor.finish(self.order[self.next], self.turn, self.since, self.record)
            self.next += 1
