"""Does a plan, executed on these ranks with this model and these samples, compute what the oracle says?

Before a launch trains, every plan runs some steps in float64 (large models: float32), and the oracle runs all ranks'
shards in turn on rank 0.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync import oracle
from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.runtime import data
from gradsync.runtime.compute import (
    FIRST_LOSS_SCALE,
    Forward,
    Loss,
    ModelCompute,
    bind,
    bind_statistics,
    oracle_gradient,
)
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}  # float32: of the largest change; sums differ in order
LARGEST_IN_FLOAT64 = 40_000_000  # parameters; above, float32 saves memory

Gradient = Callable[[int, int, np.ndarray], np.ndarray]


def exactness(model: torch.nn.Module) -> torch.dtype:
    """The type that its plans are held against the oracle in."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return torch.float64 if parameters <= LARGEST_IN_FLOAT64 else torch.float32


class Held:
    """Plans are held against the oracle one by one, on copies of `first`. Collective over all ranks."""

    def __init__(
        self,
        loaded: data.Data,
        first: torch.nn.Module,
        loss: Loss,
        seed: int,
        rank: int,
        groups: Groups,
        turns: int,
    ):
        self.loaded, self.loss, self.seed, self.rank, self.groups = loaded, loss, seed, rank, groups
        self.turns = turns
        self.dtype = exactness(first)
        self.name = str(self.dtype).removeprefix("torch.")
        self.first, self.pool = first, Pool()
        self.known: dict[tuple[int, int, str], np.ndarray] = {}  # gradients of equal parameters, once for all plans
        self.device = groups.device
        self.mirror = self._copy() if rank == 0 else None

    def _copy(self) -> torch.nn.Module:
        return copy.deepcopy(self.first).to(self.device.torch_device, self.dtype)

    def _shard(self, number: int, rank: int) -> data.Shard:
        return data.shard(self.loaded, number, rank, self.dtype, self.device)

    def against_oracle(self, plan: Plan) -> dict[str, Any]:
        """Steps, type and the largest difference of a parameter (float32: as a share of the largest change).

        Raises RunError where it is beyond the tolerance.
        """
        executor = prepare(plan, self.rank, self.groups, dtype=self.dtype, pool=self.pool)
        buffers = executor.buffers
        model = self._copy()
        held = {role: plan.holding(role) or "" for role in ("parameter", "statistics", "scaler")}
        bind(model, plan, buffers[held["parameter"]])
        if held["statistics"]:
            bind_statistics(model, buffers[held["statistics"]])
        initial = buffers[held["parameter"]].cpu().numpy().copy()
        compute = ModelCompute(
            Forward(model, self.loss, self.rank, self.seed),
            lambda number: self._shard(number, self.rank),
            name=plan.name,
            scaler=buffers.get(held["scaler"]),
            queued=self.device.queued,
            passes=plan.passes,
        )
        executor.run(self.turns, compute, record=False)
        compute.settle()
        compute.close()
        difference = torch.zeros(1, dtype=torch.float64)
        if self.mirror is not None:
            begin = {"parameter": initial, "scaler": np.array([FIRST_LOSS_SCALE / plan.passes, 0.0, 0.0])}
            gradient = self._gradient(plan, self.mirror)
            expected = oracle.evaluate(plan, self.turns, gradient, begin, dtype=self.name)[0]["parameter"]
            difference[0] = float(np.abs(expected - buffers["parameter"].cpu().numpy()).max())
            if self.dtype != torch.float64:
                difference /= max(float(np.abs(expected - initial).max()), 1e-30)
        dist.broadcast(difference, 0)
        if not float(difference) <= TOLERANCE[self.dtype]:
            raise RunError(
                f"scheme {plan.name!r} does not compute what its plan says: after {self.turns} {self.name} steps "
                f"parameters differ from the oracle's by {float(difference):.3g}"
            )
        return {"oracle_steps": self.turns, "oracle_dtype": self.name, "oracle_difference": float(difference)}

    def _gradient(self, plan: Plan, mirror: torch.nn.Module) -> Gradient:
        compute = oracle_gradient(
            lambda peer: Forward(mirror, self.loss, peer, self.seed),
            plan,
            lambda peer, number: self._shard(number, peer),
        )
        layout = hashlib.sha256(repr(plan.tensors).encode()).hexdigest()
        factor = FIRST_LOSS_SCALE / plan.passes if "scaler" in plan.buffer else 1.0

        def gradient(peer: int, number: int, values: np.ndarray) -> np.ndarray:
            key = (peer, number, layout + hashlib.sha256(values.tobytes()).hexdigest())
            if key not in self.known:
                self.known[key] = compute(peer, number, values)
            return self.known[key] * factor

        return gradient
