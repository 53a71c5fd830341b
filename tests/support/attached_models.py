"""Small models, and the ways in which users of DDP train them, for `gradsync.attach` beside DDP."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.measure.operations import of_model
from gradsync.plan import Plan
from gradsync.plan.workload import Workload

STEPS = 20
BATCH, PIXELS, CLASSES = 4, 8, 5
COST = Linear(2e-4, 1e-8)  # seconds, seconds a byte: some gradients are merged
FORWARD_SECONDS = 2e-3


class Net(nn.Module):
    """Convolutions with batch normalisation, a head that is used every second time, a tied weight, a frozen one."""

    def __init__(self, *, statistics: bool = False, sometimes: bool = False, tied: bool = False, frozen: bool = False):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4) if statistics else nn.Identity()
        self.body = nn.Linear(4 * PIXELS * PIXELS, 16)
        self.again = nn.Linear(16, 16, bias=False)
        self.twice = nn.Linear(16, 16, bias=False)
        self.sometimes = nn.Linear(16, 16) if sometimes else None
        self.never = nn.Linear(3, 3) if sometimes else None
        self.head = nn.Linear(16, CLASSES)
        if tied:
            self.twice.weight = self.again.weight
        if frozen:
            self.again.weight.requires_grad_(False)
        self.passes = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(images))).flatten(1)
        x = torch.tanh(self.twice(torch.tanh(self.again(torch.tanh(self.body(x))))))
        if self.sometimes is not None and self.training and torch.is_grad_enabled():
            self.passes += 1
            x = self.sometimes(x) if self.passes % 2 else x
        return self.head(x)


class Scaled(nn.Module):
    """Its buffers are other tensors after each forward: one takes the other's place, one is of what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(PIXELS * PIXELS, 16)
        self.head = nn.Linear(16, CLASSES)
        for name in ("now", "before", "of_features"):
            self.register_buffer(name, torch.ones(16))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.body(images.flatten(1)))
        if self.training:
            self.before = self.now
            self.now = 0.5 * self.now + 0.5 * x.detach().abs().mean(0)
            self.of_features = x.mean(0)
        return self.head(x * self.now)


@dataclass(frozen=True)
class Case:
    """How it is trained; `schemes` are those that it is trained with."""

    model: dict[str, bool]
    accumulate: int = 1
    clip: float | None = None
    amp: bool = False
    scaler: bool = False
    find_unused: bool = False
    keep_zeroed: bool = False  # zero_grad(set_to_none=False)
    dtype: torch.dtype = torch.float32
    schemes: tuple[str, ...] = ("mgwfbp",)


UPDATING = ("priority", "dear", "pipelined")  # whose plans update parameters themselves
CASES = {
    "plain": Case({}, schemes=("wfbp", "mgwfbp", "single", "fixed_buckets", *UPDATING)),
    "float64": Case({}, dtype=torch.float64, schemes=("ring", "mgwfbp", *UPDATING)),
    "accumulation": Case({}, accumulate=3, schemes=("mgwfbp", *UPDATING)),
    "kept gradients": Case({}, keep_zeroed=True),
    "clipping": Case({}, clip=0.05),
    "amp": Case({}, amp=True, schemes=("mgwfbp", *UPDATING)),
    "scaler": Case({}, amp=True, scaler=True, clip=0.1),
    "unused": Case({"sometimes": True}, find_unused=True),
    "tied": Case({"tied": True}, schemes=("mgwfbp", *UPDATING)),
    "frozen": Case({"frozen": True}, schemes=("mgwfbp", *UPDATING)),
    "statistics": Case({"statistics": True}, schemes=("mgwfbp", *UPDATING)),
}


def build(case: Case) -> Net:
    torch.manual_seed(5)
    return Net(**case.model).to(case.dtype)


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    parameters = [each for each in model.parameters() if each.requires_grad]
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def sample(rank: int, number: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng((rank, number))
    images = torch.from_numpy(rng.normal(size=(BATCH, 1, PIXELS, PIXELS))).to(dtype)
    return images, torch.from_numpy(rng.integers(0, CLASSES, BATCH))


def planned(scheme: str, model: nn.Module, ranks: int, settings: dict[str, float] | None = None) -> Plan:
    """The plan of a scheme for a model, whose update is that of `optimizer`."""
    known = schemes.discovered()
    chosen = settings or {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    return schemes.plan(known[scheme], workload_of(model), COST, ranks, optimizer="sgd", **chosen)


def workload_of(model: nn.Module) -> Workload:
    """Its layers, by the operations that they take."""
    images, _ = sample(0, 0, next(model.parameters()).dtype)
    return of_model("net", model, lambda copied: copied(images), FORWARD_SECONDS)


def train(
    model: nn.Module,
    chosen: torch.optim.Optimizer,
    case: Case,
    rank: int,
    no_sync: Callable[[], Any],
    steps: int = STEPS,
    first: int = 0,
) -> list[float]:
    """The loop of a user; the losses."""
    scaler = torch.amp.GradScaler("cpu", enabled=case.scaler, init_scale=1024.0)
    slower = torch.optim.lr_scheduler.LambdaLR(chosen, lambda step: 0.5 ** ((first + step) // 7))
    losses = []
    for step in range(first, first + steps):
        chosen.zero_grad(set_to_none=not case.keep_zeroed)
        for micro in range(case.accumulate):
            last = micro == case.accumulate - 1
            images, labels = sample(rank, step * case.accumulate + micro, case.dtype)
            with contextlib.nullcontext() if last else no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case.amp):
                    loss = nn.functional.cross_entropy(model(images), labels) / case.accumulate
                (scaler.scale(loss) if case.scaler else loss).backward()
        if case.clip is not None:
            scaler.unscale_(chosen)
            nn.utils.clip_grad_norm_(model.parameters(), case.clip)
        if case.scaler:
            scaler.step(chosen)
            scaler.update()
        else:
            chosen.step()
        slower.step()
        losses.append(float(loss.detach()))
    return losses


def state(model: nn.Module) -> dict[str, np.ndarray]:
    """Parameters and buffers, detached from what trains on."""
    return {name: value.detach().clone().numpy() for name, value in model.state_dict().items()}
