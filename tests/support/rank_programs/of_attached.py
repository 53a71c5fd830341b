"""`gradsync.attach` in a loop of one's own, beside the same loop with DDP."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import attached_models as attached
import gradsync
from gradsync.attachment import Auto
from gradsync.attachment.owned import Owned
from gradsync.errors import InputError
from gradsync.runtime.devices import PROCESSOR, Device
from queued_device import QueuedProcessor


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
    told["replaced"] = [_replaced(rank, ranks, scheme) for scheme in ("mgwfbp", "dear")]
    return told


def _replaced(rank: int, ranks: int, scheme: str) -> Any:
    """Buffers that every forward replaces, after some steps on samples of this rank's own."""
    torch.manual_seed(5)
    model = attached.Scaled()
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, attached.planned(scheme, model, ranks))
    attached.train(model, optimizer, attached.CASES["plain"], rank, handle.no_sync, 3)
    handle.close()
    assert not any(buffer.requires_grad for buffer in handle.executor.buffers.values())
    return {name: value for name, value in attached.state(model).items() if "." not in name}


AUTO_STEPS = 40
BRIEF = Auto(discard=1, warmup=3, steps=1, trials=3, measure_seconds=0.05, schedules=("wfbp",))
# it differs from the starting plan, so that both are tried; 28 iterations, then one of them is kept
AUTO_CASES = ("plain", "float64", "accumulation", "kept gradients", "clipping", "unused", "tied", "frozen")
AUTO_QUEUED = "statistics"  # its device is spoken to as a GPU is


def attached_auto(rank: int, ranks: int) -> dict[Any, Any]:
    """(case, "auto" or "ddp") -> what was trained, and the history; what happens to a choice besides."""
    told: dict[Any, Any] = {}
    for name in (*AUTO_CASES, AUTO_QUEUED):
        case = attached.CASES[name]
        model = attached.build(case)
        wrapped = DistributedDataParallel(model, find_unused_parameters=case.find_unused)
        attached.train(wrapped, attached.optimizer(model), case, rank, wrapped.no_sync, AUTO_STEPS)
        told[name, "ddp"] = attached.state(model)
        device = QueuedProcessor() if name == AUTO_QUEUED else PROCESSOR
        with patch("gradsync.attachment.start._device", lambda _, chosen=device: chosen):
            told[name, "auto"] = _chosen(case, rank)
    told["default"] = _chosen(attached.CASES["float64"], rank, Auto(discard=0, warmup=4, steps=1, trials=1))
    for slow in ("wfbp", "fixed_buckets"):
        clock = Ahead()
        with (
            patch("gradsync.attachment.start._device", lambda _, chosen=clock: chosen),
            patch.object(Owned, "taken", _slowed(slow, rank, clock)),
        ):
            told["slow", slow] = _chosen(attached.CASES["float64"], rank)
    told["predicted alone"] = _chosen(attached.CASES["statistics"], rank, replace(BRIEF, trials=0))
    told["too short"] = _chosen(attached.CASES["float64"], rank, BRIEF, steps=2)
    told["costs that make no sense"] = _chosen(attached.CASES["float64"], rank, BRIEF, all_reduce="nowhere.csv")
    told["disturbed"] = _disturbed(rank)
    wider = nn.Linear(3, 3 + rank)
    told["unlike"] = _refusal(lambda: gradsync.attach(wider, attached.optimizer(wider), "auto"))
    return told


def _chosen(
    case: attached.Case, rank: int, options: Auto = BRIEF, *, steps: int = AUTO_STEPS, all_reduce: str | None = None
) -> dict[str, Any]:
    """What a loop has trained whose plan was chosen meanwhile; what rank 0 gives counts."""
    model = attached.build(case)
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(
        model,
        optimizer,
        options if rank == 0 else "auto",
        find_unused_parameters=case.find_unused,
        all_reduce=all_reduce if rank == 0 else None,
    )
    attached.train(model, optimizer, case, rank, handle.no_sync, steps)
    watched = handle.pilot is not None
    handle.close()
    return {
        "state": attached.state(model),
        "history": handle.history,
        "plan": handle.plan.name,
        "whole": handle.whole.to_json(),
        "watched": watched,
    }


class Ahead(Device):
    """A processor whose clock can be set forward, so that no load of the machine outweighs what is planted."""

    ahead = 0.0

    def mark(self) -> float:
        return super().mark() + self.ahead


def _slowed(plan: str, rank: int, clock: Ahead) -> Any:
    """As `Owned.taken`, but by the clock one rank's gradients take long with a plan of that name."""
    taken = Owned.taken

    def slow(self: Owned, name: str, parameter: torch.Tensor) -> torch.Tensor:
        if rank == 1 and self.plan.name == plan:
            clock.ahead += 1.0
        return taken(self, name, parameter)

    return slow


def _disturbed(rank: int) -> dict[str, Any]:
    """Evaluations, a forward that raises, and a checkpoint in the middle of the trial, from which a new run goes on."""
    case = attached.CASES["statistics"]
    model = attached.build(case)
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, BRIEF)
    attached.train(model, optimizer, case, rank, handle.no_sync, 2)
    _fails_in_forward(model, rank)
    for step in range(2, 7):
        attached.train(model, optimizer, case, rank, handle.no_sync, 1, first=step)
        if rank == 0:  # alone, between two iterations
            model(attached.sample(rank, 0, torch.float32)[0])
        dist.barrier()
    trying = handle.pilot is not None and handle.pilot.trial is not None
    model.eval()
    with torch.no_grad():
        model(attached.sample(rank, 0, torch.float32)[0])
    model.train()
    kept, momentum, own = attached.state(model), optimizer.state_dict(), handle.state_dict()
    handle.close()
    resumed = attached.build(case)
    optimizer = attached.optimizer(resumed)
    handle = gradsync.attach(resumed, optimizer, BRIEF)
    resumed.load_state_dict({name: torch.from_numpy(value) for name, value in kept.items()})
    optimizer.load_state_dict(momentum)
    handle.load_state_dict(own)
    attached.train(resumed, optimizer, case, rank, handle.no_sync, AUTO_STEPS - 7, first=7)
    handle.close()
    return {"state": attached.state(resumed), "trying": trying, "chosen": handle.history[-1]["event"]}


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
