"""A small network on random data in float64, its schedules' plans, and its training by plain torch as the reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import nn

from gradsync import optimizers, schedules, updates
from gradsync.collectives import NATIVE
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.learning_rates import UNCHANGED, LearningRate
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.runtime.compute import Forward
from gradsync.runtime.torch_optimizers import named
from gradsync.transforms.step import Step
from tiny_workloads import workload

TURNS = 8
LR, MOMENTUM = 0.1, 0.9
OPTIMIZER = optimizers.get("sgd", lr=LR, momentum=MOMENTUM)
BATCH, INPUTS, CLASSES = 6, 7, 4
COST = Linear(8.0, 0.02)  # seconds, seconds a byte: chosen so that the schedules group these layers differently
BACKWARD = [7.0, 4.0, 5.0, 1.0, 12.0, 2.0, 9.0, 3.0]


def build() -> nn.Sequential:
    """The same network whenever it is called."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Linear(INPUTS, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, CLASSES)
    )
    return net.double()


def forward(model: nn.Module, rank: int) -> Forward:
    return Forward(model, nn.functional.cross_entropy, rank)


def sample(rank: int, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The shard of `rank` in `turn`."""
    rng = np.random.default_rng((rank, turn))
    return torch.from_numpy(rng.normal(size=(BATCH, INPUTS))), torch.from_numpy(rng.integers(0, CLASSES, BATCH))


def load() -> Workload:
    """Its layers as planners see them."""
    parameters = list(build().named_parameters())[::-1]
    return workload(
        [8 * parameter.numel() for _, parameter in parameters],
        BACKWARD,
        forward=3.0,
        dtype="float64",
        names=[name for name, _ in parameters],
        shapes=[tuple(parameter.shape) for _, parameter in parameters],
    )


def options(schedule: str) -> dict[str, Any]:
    """The defaults; sizes that are meant for real models are made to fit this one."""
    small = load().bytes // 4
    return {key: small for key in schedules.options(schedule) if key.endswith("_bytes")}


def plan(
    schedule: str,
    ranks: int,
    algorithm: str = NATIVE,
    *,
    update: str = "ssgd",
    optimizer: Optimizer = OPTIMIZER,
    **step: Any,
) -> Plan:
    chosen = schedules.messages(schedule, load(), COST, options(schedule))
    settings: dict[str, Any] = {"algorithm": algorithm, "optimizer": optimizer}
    return updates.plan(update, schedule, load(), chosen, ranks, **settings, step=Step(**step))


def composed() -> dict[str, schemes.Scheme]:
    """A scheme for each collective, and whole tensors on several lanes to servers in turn."""
    with_collectives = {name: scheme for name, scheme in schemes.discovered().items() if scheme.algorithm != NATIVE}
    lanes = schemes.Scheme(name="lanes", schedule="wfbp", options={"lanes": 3}, collective="ps_tensor")
    return {**with_collectives, "lanes": lanes}


def of_scheme(scheme: schemes.Scheme, ranks: int) -> Plan:
    return schemes.plan(scheme, load(), COST, ranks, lr=LR, momentum=MOMENTUM)


def by_level(ranks: int) -> Plan:
    """Layer by layer, each message summed by level."""
    return of_scheme(schemes.Scheme(name="by_level", schedule="wfbp", collective="native_by_level"), ranks)


def two_lanes(plan: Plan) -> Plan:
    """The plan with every other message on a lane of its own."""
    (role,) = plan.roles
    body: list[Any] = []
    for op in role.body:
        number = sum(other.name.startswith("message") for other in body)
        if op.name.startswith("message") and number % 2 == 0:
            op = dataclasses.replace(op, lane="other")
        if op.name == "update":
            messages = tuple(other.name for other in body if other.name.startswith("message"))
            op = dataclasses.replace(op, after=messages)
        body.append(op)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(body)),))


def first(plan: Plan) -> np.ndarray:
    """The first parameters, laid out as in the plan."""
    parameters = dict(build().named_parameters())
    return np.concatenate([parameters[tensor.name].detach().reshape(-1).numpy() for tensor in plan.tensors])


def reference(
    ranks: int,
    *,
    whole_batch: bool = False,
    accumulate: int = 1,
    clip: float | None = None,
    optimizer: Optimizer = OPTIMIZER,
    rate: LearningRate = UNCHANGED,
) -> dict[str, np.ndarray]:
    """Plain torch: gradients of the shards in turn, averaged (or of all samples at once), then torch's optimizer.

    With `accumulate` a turn has so many shards of each rank.
    """
    model = build()
    kind, arguments = optimizer.torch
    stepped = named(kind)(model.parameters(), **arguments)
    scheduler = torch.optim.lr_scheduler.LambdaLR(stepped, rate)
    for turn in range(TURNS):
        numbers = range(turn * accumulate, (turn + 1) * accumulate)
        shards = [sample(rank, number) for rank in range(ranks) for number in numbers]
        if whole_batch:
            shards = [(torch.cat([x for x, _ in shards]), torch.cat([y for _, y in shards]))]
        stepped.zero_grad()
        for x, y in shards:
            (nn.functional.cross_entropy(model(x), y) / len(shards)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        stepped.step()
        scheduler.step()
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
