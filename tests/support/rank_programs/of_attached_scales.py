"""`gradsync.attach` in a loop with torch's GradScaler, beside one with DDP; one rank overflows now and then."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import attached_models as attached
import gradsync
from gradsync.attachment import Attached, RefusedError
from gradsync.configuration import schemes

STEPS, BROKEN, OVERFLOWS = 12, 1, (0, 4, 5)  # the steps that overflow, on that rank alone
SGD, ADAM = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}, {"lr": 1e-2, "weight_decay": 0.1}
CASES = {  # optimizer of torch, its settings, that of the plan, the norm that gradients are clipped to
    "sgd": (torch.optim.SGD, SGD, "sgd", None),
    "clipped": (torch.optim.SGD, SGD, "sgd", 0.05),
    "fused": (torch.optim.SGD, {**SGD, "fused": True}, "sgd", None),
    "adamw": (torch.optim.AdamW, ADAM, "adamw", 0.1),
}


class Step(NamedTuple):
    """What there is after a step: parameters, what the plan keeps for its optimizer, the loss scale."""

    parameters: dict[str, np.ndarray]
    kept: dict[str, np.ndarray]
    scale: float


def attached_with_a_scaler(rank: int, ranks: int) -> dict[Any, Any]:
    """(case, scheme or "ddp") -> each step; `refused`: what is said of loops that leave the scaler out."""
    ended: dict[Any, Any] = {"refused": _refused(rank, ranks)}
    for name, (kind, settings, planned, clip) in CASES.items():
        model = attached.build(attached.CASES["plain"])
        # torch's fused SGD begins with momentum that nobody has written if its first step is skipped (2.13)
        reference = kind(model.parameters(), **{**settings, "fused": False})
        ended[name, "ddp"] = _trained(DistributedDataParallel(model), model, reference, rank, clip)
        for scheme in attached.UPDATING:
            model = attached.build(attached.CASES["plain"])
            optimizer = kind(model.parameters(), **settings)
            plan = _plan(scheme, model, ranks, planned, settings, clip)
            scaler = _scaler()
            handle = gradsync.attach(model, optimizer, plan, scaler=scaler)
            ended[name, scheme] = _trained(model, model, optimizer, rank, None, scaler, handle)
            handle.close()
    return ended


def _scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)


def _plan(
    scheme: str, model: nn.Module, ranks: int, optimizer: str, settings: dict[str, Any], clip: float | None
) -> Any:
    known = {key: value for key, value in settings.items() if key != "fused"}
    known |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8} if optimizer == "adamw" else {}
    chosen = schemes.discovered()[scheme]
    return schemes.plan(
        chosen, attached.workload_of(model), attached.COST, ranks, optimizer=optimizer, clip_norm=clip, **known
    )


def _trained(
    called: nn.Module,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    clip: float | None,
    scaler: torch.amp.GradScaler | None = None,
    handle: Attached | None = None,
) -> list[Step]:
    scaler = scaler or _scaler()
    slower = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step // 5))
    steps = []
    for step in range(STEPS):
        optimizer.zero_grad()
        images, labels = attached.sample(rank, step, torch.float32)
        loss = nn.functional.cross_entropy(called(images), labels)
        if rank == BROKEN and step in OVERFLOWS:
            loss = loss * torch.inf
        scaler.scale(loss).backward()
        if step % 2 or clip is not None:  # else the scaler's step does it
            scaler.unscale_(optimizer)
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        slower.step()
        kept = handle.state_dict()["buffers"] if handle else {}
        kept = {name: value.numpy() for name, value in kept.items() if name not in ("scaler", "norm", "squares")}
        steps.append(Step(attached.state(model), kept, scaler.get_scale()))
    return steps


def _refused(rank: int, ranks: int) -> dict[str, str]:
    """What is said of a step without the scaler, and of scalers that differ between ranks."""
    said = {}
    kind, settings, planned, _ = CASES["sgd"]

    def attaching(**options: Any) -> tuple[nn.Module, torch.optim.Optimizer, Attached]:
        model = attached.build(attached.CASES["plain"])
        optimizer = kind(model.parameters(), **settings)
        plan = _plan("dear", model, ranks, planned, settings, None)
        return model, optimizer, gradsync.attach(model, optimizer, plan, **options)

    images, labels = attached.sample(rank, 0, torch.float32)
    for name, given in (("without", None), ("stepped alone", _scaler())):
        model, optimizer, handle = attaching(scaler=given)
        scaler = given or _scaler()
        scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
        try:
            scaler.step(optimizer) if given is None else optimizer.step()
        except RefusedError as error:
            said[name] = str(error)
        handle.close()
    try:
        attaching(scaler=torch.amp.GradScaler("cpu", init_scale=2.0 ** (10 + rank)))
    except RefusedError as error:
        said["scales"] = str(error)
    return said
