"""Training under a loss scale by every update: one rank's gradients overflow in the middle, and training goes on."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import small_model
from gradsync import optimizers, updates
from gradsync.optimizers import Optimizer
from gradsync.plan import PASSING, Local, Plan
from gradsync.runtime.compute import Forward
from gradsync.runtime.contenders import Planned
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups

SCALED_TURNS, SPOILT, SPOILT_RANK = 9, 4, 1  # the turn in which that rank's gradients overflow
GROWTH_INTERVAL = 3  # good steps that double the scale


class Scaled(NamedTuple):
    """An optimizer, the updates that it goes by, and what a step has besides the loss scale."""

    optimizer: Optimizer
    updates: tuple[str, ...]
    clip: float | None = None
    passes: int = 1
    wire: str = ""


SCALED = {
    "sgd": Scaled(small_model.OPTIMIZER, tuple(updates.names())),
    "clipped adamw": Scaled(
        optimizers.get("adamw", lr=0.05, weight_decay=0.1), ("ssgd", "sharded"), clip=0.3, passes=2
    ),
    "narrow": Scaled(small_model.OPTIMIZER, ("by_message",), wire="float32"),
}


def scaled_plan(case: str, update: str, ranks: int) -> Plan:
    how = SCALED[case]
    more: dict[str, Any] = {"accumulate": how.passes, "clip_norm": how.clip, "wire": how.wire, "loss_scaling": True}
    plan = small_model.plan("mgwfbp", ranks, update=update, optimizer=how.optimizer, **more)
    (role,) = plan.roles
    grown = tuple(
        dataclasses.replace(op, arguments={**op.arguments, "growth_interval": GROWTH_INTERVAL})
        if isinstance(op, Local) and any(ref.buffer == "scaler" for ref in op.writes)
        else op
        for op in role.body
    )
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=grown),))


class Overflow(torch.autograd.Function):
    """The loss as it is, with gradients beyond all numbers."""

    @staticmethod
    def forward(context: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.inf


class Spoiling:
    """Samples and loss of a rank; in the first pass of the turn `SPOILT` gradients of `SPOILT_RANK` overflow."""

    def __init__(self, rank: int, passes: int):
        self.rank, self.number = rank, -1
        self.spoilt = SPOILT * passes if rank == SPOILT_RANK else -1

    def sample(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.number = number
        return small_model.sample(self.rank, number)

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(outputs, labels)
        return Overflow.apply(loss) if self.number == self.spoilt else loss


Values = dict[str, np.ndarray]


def loss_scales(rank: int, ranks: int) -> dict[tuple[str, str], tuple[Values, Values, Values, Values]]:
    """(case, update) -> what outlasts a turn: before the turn that overflows, after it, at the end, and resumed."""
    ended, groups = {}, Groups()
    for case in SCALED:
        for update in SCALED[case].updates:
            plan = scaled_plan(case, update, ranks)
            whole = _contender(plan, case, rank, groups)
            whole.run(SPOILT)
            before = _kept(whole)
            alike, own = copy.deepcopy(whole.state())
            whole.run(1)
            after = _kept(whole)
            whole.run(SCALED_TURNS - SPOILT - 1)
            checkpoint = [alike]
            dist.broadcast_object_list(checkpoint, 0)  # as a checkpoint: rank 0's for all
            again = _contender(plan, case, rank, groups)
            again.restore(checkpoint[0], own)
            again.run(SCALED_TURNS - SPOILT)
            ended[case, update] = before, after, _kept(whole), _kept(again)
            whole.close()
            again.close()
    groups.close()
    return ended


def _contender(plan: Plan, case: str, rank: int, groups: Groups) -> Planned:
    loss = Spoiling(rank, SCALED[case].passes)
    return Planned(plan, Forward(small_model.build(), loss, rank), loss.sample, groups, Pool())


def _kept(contender: Planned) -> Values:
    buffers = contender.executor.buffers
    return {b.name: buffers[b.name].numpy().copy() for b in contender.plan.buffers if b.role not in PASSING}


def reference(case: str, ranks: int) -> tuple[dict[str, np.ndarray], tuple[float, int]]:
    """Plain torch with its GradScaler on all samples in turn: parameters, and (loss scale, good steps) at the end."""
    how, model = SCALED[case], small_model.build()
    losses = [Spoiling(rank, how.passes) for rank in range(ranks)]
    kind, arguments = how.optimizer.torch
    stepped = getattr(torch.optim, kind)(model.parameters(), **arguments)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0 / how.passes, growth_interval=GROWTH_INTERVAL)
    for turn in range(SCALED_TURNS):
        stepped.zero_grad()
        for loss in losses:
            for number in range(turn * how.passes, (turn + 1) * how.passes):
                inputs, labels = loss.sample(number)
                scaler.scale(loss(model(inputs), labels) / (ranks * how.passes)).backward()
        scaler.unscale_(stepped)
        if how.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), how.clip)
        scaler.step(stepped)
        scaler.update()
    state = scaler.state_dict()
    parameters = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    return parameters, (state["scale"], state["_growth_tracker"])
