"""The plan that a model is attached to: a plan, the file of one, or the name of a scheme that is planned now.

A scheme is planned on rank 0, from a workload that was measured, or from the operations of a forward pass of the model
and the time that the pass takes; and from what all-reduces take, which is measured between the running ranks unless it
is given.
"""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gradsync import optimizers, updates
from gradsync.attachment.fit import planned_optimizer, trained
from gradsync.check import check
from gradsync.configuration import schemes, sent_kinds
from gradsync.configuration.scheme import Scheme
from gradsync.costs import fitted
from gradsync.errors import InputError
from gradsync.experiments.costs import of_text, on_axes
from gradsync.files import packaged, reading
from gradsync.measure import allreduce as measured
from gradsync.measure import operations
from gradsync.names import refuse_unknown
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.runtime.devices import Device
from gradsync.runtime.models import own
from gradsync.slurm.launch import ranks_a_node

SMALLEST = 4096  # bytes of the smallest all-reduce that is measured
PASSES = 3  # timed, of forward


@dataclass(frozen=True)
class Sources:
    """What a scheme is planned from: `workload` or `inputs`, `all_reduce` (as --allreduce; None: measured now)."""

    workload: Workload | str | Path | None
    inputs: Any
    all_reduce: str | None
    broadcast_buffers: bool


def plan(
    given: Plan | str | Path, sources: Sources, model: nn.Module, optimizer: torch.optim.Optimizer, device: Device
) -> Plan:
    """The checked plan, the same on all ranks. Collective; raises InputError for one that is none, on some rank."""
    cost: Any = None
    workload: Workload | None = None
    if from_rank_0(lambda: isinstance(given, str) and not _is_file(given)):  # files may be there alone
        if sources.workload is None and sources.inputs is None:
            raise InputError(
                f"attach: to plan {given!r} for this model, give workload= (a file of gradsync measure layers) or "
                "inputs= (one batch, as the model takes it); or give the file of a plan"
            )
        if sources.workload is None:
            workload = _counted(model, sources.inputs)
        if sources.all_reduce is None:
            cost = _measured(model, device)

    def text() -> str:
        made = _made(given, sources, model, optimizer, cost, workload)
        check(made)
        return made.to_json()

    return Plan.from_json(from_rank_0(text))


def from_rank_0(make: Callable[[], Any]) -> Any:
    """What rank 0 makes, on all ranks; collective. Raises InputError on all of them if it does there."""
    shared: list[Any] = ["", None]
    if dist.get_rank() == 0:
        try:
            shared[1] = make()
        except InputError as error:
            shared[0] = str(error)
    dist.broadcast_object_list(shared, 0)
    if shared[0]:
        raise InputError(shared[0])
    return shared[1]


def scheme_of(name: str) -> Scheme:
    """The scheme of that name, on the network of the running ranks. Raises InputError if there is none."""
    known = schemes.load(packaged.file("config/schemes.yaml"))
    refuse_unknown("scheme", name, known, "attach")
    scheme = known[name]
    return scheme.model_copy(update={"topology": scheme.network(dist.get_world_size(), _ranks_a_node()).name})


def _ranks_a_node() -> int | None:
    """The ranks that share this node, as torchrun or Slurm tells; None if nobody does."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(local) if local.isdecimal() and int(local) > 0 else ranks_a_node()


def _is_file(given: str) -> bool:
    return given.endswith(".json") or "/" in given or Path(given).is_file()


def _made(
    given: Plan | str | Path,
    sources: Sources,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    cost: Any,
    workload: Workload | None,
) -> Plan:
    if isinstance(given, Plan):
        return given
    if isinstance(given, Path) or _is_file(given):
        return Plan.from_json(reading.text(str(given), "plan"), str(given))
    scheme = scheme_of(given)
    if not scheme.averaged:
        raise InputError(f"attach: scheme {given!r} applies no mean gradient of all ranks: gradsync train runs it")
    if workload is None:
        measured_one = sources.workload
        workload = measured_one if isinstance(measured_one, Workload) else Workload.load(measured_one or "")
    if not sources.broadcast_buffers:
        workload = workload.model_copy(update={"statistics": 0})
    return _planned(scheme, workload, sources, model, optimizer, cost)


def _planned(
    scheme: Scheme, workload: Workload, sources: Sources, model: nn.Module, optimizer: torch.optim.Optimizer, cost: Any
) -> Plan:
    """The plan, whose update is that of the optimizer if it has to be the plan's own."""
    ranks, network = dist.get_world_size(), None
    if sources.all_reduce is not None:
        sent = sent_kinds.of_scheme(scheme, ranks)
        costs = on_axes(of_text(sources.all_reduce, scheme, ranks), sources.all_reduce, sent.axes, ranks, sent.kinds)
        cost, network = costs.all_reduce, costs.network
    name, settings = "sgd", dict[str, Any](lr=1.0)
    if not updates.at_once(scheme.update):
        planned = planned_optimizer(optimizer, trained(model))
        known = optimizers.settings(planned.name)
        name, settings = planned.name, {key: value for key, value in planned.arguments.items() if key in known}
    return schemes.plan(scheme, workload, cost, ranks, optimizer=name, network=network, **settings)


def _counted(model: nn.Module, inputs: Any) -> Workload:
    """The operations of forward in the time that a few passes take; collective: forward may send messages itself."""
    seconds = _forward_seconds(model, inputs)
    made, problem = None, ""
    try:
        made = operations.of_model(type(model).__name__, model, lambda copied: _outputs(copied, inputs), seconds)
    except InputError as error:
        problem = str(error)
    problems: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    if wrong := next(filter(None, problems), ""):
        raise InputError(wrong)
    assert made is not None
    return made


def _outputs(model: nn.Module, inputs: Any) -> Any:
    return own.Own(model, lambda output: output, inputs).outputs(model, inputs)


def _forward_seconds(model: nn.Module, inputs: Any) -> float:
    """The median of a few forward passes of a copy, on the slowest rank; collective."""
    problem, taken = "", []
    try:
        copied = copy.deepcopy(model)
        with torch.random.fork_rng(), torch.no_grad():
            for _ in range(1 + PASSES):
                start = time.perf_counter()
                _outputs(copied, inputs)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                taken.append(time.perf_counter() - start)
    except Exception as error:
        problem = f"attach: inputs=: forward raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, (problem, statistics.median(taken[1:]) if taken[1:] else 0.0))
    for reason, _ in reports:
        if reason:
            raise InputError(reason)
    return max(seconds for _, seconds in reports)


def _measured(model: nn.Module, device: Device) -> Any:
    """What the backend's own all-reduce takes between the running ranks; collective."""
    total = sum(parameter.numel() * parameter.element_size() for parameter in trained(model).values())
    points = measured.measure(SMALLEST, max(total, 2 * SMALLEST), device)["seconds"][""]
    sizes = sorted(points)
    return fitted.fit(sizes, [statistics.fmean(points[size]) for size in sizes], source="measured between the ranks")
