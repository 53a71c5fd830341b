"""`gradsync.attach` in a loop of one's own, beside the same loop with DDP."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import attached_models as attached
import gradsync
from gradsync.errors import InputError


def attached_beside_ddp(rank: int, ranks: int) -> dict[tuple[str, str], Any]:
    """(case, scheme or "ddp") -> what was trained; `unlike`: what is said of models that are."""
    ended: dict[tuple[str, str], Any] = {("unlike", ""): _unlike(rank, ranks)}
    for name, case in attached.CASES.items():
        model = attached.build(case)
        wrapped = DistributedDataParallel(model, find_unused_parameters=case.find_unused)
        losses = attached.train(wrapped, attached.optimizer(model), case, rank, wrapped.no_sync)
        ended[name, "ddp"] = attached.state(model), losses
        for scheme in case.schemes:
            model = attached.build(case)
            plan = attached.planned(scheme, model, ranks)
            if rank:  # as with DDP, rank 0's are those that count
                with torch.no_grad():
                    next(model.parameters()).add_(1.0)
            optimizer = attached.optimizer(model)
            handle = gradsync.attach(model, optimizer, plan, find_unused_parameters=case.find_unused)
            losses = attached.train(model, optimizer, case, rank, handle.no_sync)
            ended[name, scheme] = attached.state(model), losses
            handle.close()
    return ended


def attached_otherwise(rank: int, ranks: int) -> dict[str, Any]:
    """What is refused on several ranks, what goes on after it, and what is planned on them."""
    told: dict[str, Any] = {}
    case = attached.CASES["plain"]
    model = attached.build(case)
    plan = attached.planned("mgwfbp", model, ranks)
    mine = plan if rank == 0 else "nowhere.json"  # rank 0's counts: files may be there alone
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, mine)
    _fails_in_forward(model, rank)
    losses = attached.train(model, optimizer, case, rank, handle.no_sync, 5)
    told["after a forward that raised"] = losses, attached.state(model)
    handle.close()
    told["resumed"] = [_resumed(rank, ranks, scheme) for scheme in ("dear", "pipelined")]
    by_name = attached.build(case)
    inputs, _ = attached.sample(0, 0, torch.float32)
    optimizer = torch.optim.Adam(by_name.parameters(), lr=1e-3)
    handle = gradsync.attach(by_name, optimizer, "priority", inputs=inputs, all_reduce="a=1e-4,b=1e-8")
    told["adam"] = attached.train(by_name, optimizer, case, rank, handle.no_sync, 5), attached.state(by_name)
    handle.close()
    told["planned"] = handle.plan.digest
    measured = attached.build(case)
    handle = gradsync.attach(measured, attached.optimizer(measured), "mgwfbp", inputs=inputs)
    told["measured"] = handle.plan.provenance["all_reduce"]
    handle.close()
    return told


def _unlike(rank: int, ranks: int) -> tuple[str, str]:
    """What is said of models that differ between ranks: in the size of a tensor, in what is frozen."""
    plan = attached.planned("mgwfbp", attached.build(attached.CASES["plain"]), ranks)
    wider, frozen = nn.Linear(3, 3 + rank), attached.build(attached.CASES["plain"])
    frozen.body.bias.requires_grad_(rank == 0)
    first, second = (
        _refusal(lambda model=model: gradsync.attach(model, attached.optimizer(model), plan))
        for model in (wider, frozen)
    )
    return first, second


def _refusal(attach: Any) -> str:
    try:
        attach()
    except InputError as error:
        return str(error)
    raise AssertionError("it was not refused")


def _fails_in_forward(model: nn.Module, rank: int) -> None:
    """One rank's forward raises, whose turn has begun, and the rank goes on with the next batch."""
    hook = model.head.register_forward_pre_hook(lambda *_: 1 / 0)
    if rank == 0:
        with suppress(ZeroDivisionError):
            model(attached.sample(rank, 0, torch.float32)[0])
    hook.remove()


def _resumed(rank: int, ranks: int, scheme: str) -> bool:
    """Whether 5 steps, a checkpoint and 5 more in a new model are 10 steps."""
    case = attached.CASES["statistics"]
    ended = []
    for stop in (10, 5):
        model = attached.build(case)
        optimizer = attached.optimizer(model)
        handle = gradsync.attach(model, optimizer, attached.planned(scheme, model, ranks))
        attached.train(model, optimizer, case, rank, handle.no_sync, stop)
        if stop == 5:
            kept, own = attached.state(model), handle.state_dict()
            handle.close()
            model = attached.build(case)
            optimizer = attached.optimizer(model)
            handle = gradsync.attach(model, optimizer, attached.planned(scheme, model, ranks))
            model.load_state_dict({name: torch.from_numpy(value) for name, value in kept.items()})
            handle.load_state_dict(own)
            attached.train(model, optimizer, case, rank, handle.no_sync, 5, first=5)
        ended.append(attached.state(model))
        handle.close()
    return all((ended[0][name] == value).all() for name, value in ended[1].items())
