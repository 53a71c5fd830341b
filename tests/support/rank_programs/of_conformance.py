"""Plans that are held against the oracle, of which some lose something."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

import torch
from torch import nn

import real_models as real
from gradsync.configuration import schemes
from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.runtime import conformance, data, models
from gradsync.runtime.compute import statistics
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from tiny_workloads import workload


def held_against_the_oracle(rank: int, ranks: int) -> dict[str, Any]:
    """The verdict on a plan in order, and on ones that lose something small on one rank; in both types."""
    verdicts: dict[str, Any] = {}
    groups = Groups()
    loaded = data.load("synthetic", model="resnet18", size=16, batch=4, ranks=ranks, seed=0)
    torch.manual_seed(0)
    small = real.build("resnet8", torch.float32)[:-1]  # of which the oracle takes no time, with the classes of the data
    model = nn.Sequential(OrderedDict(body=small, fc=nn.Linear(64, 1000)))
    layers = [(name, parameter.numel()) for name, parameter in model.named_parameters()][::-1]
    load = workload([4 * n for _, n in layers], [1e-3] * len(layers), names=[name for name, _ in layers])
    load = load.model_copy(update={"statistics": sum(buffer.numel() for buffer in statistics(model))})
    scheme = schemes.Scheme(name="mgwfbp")
    sgd = schemes.plan(scheme, load, real.COST, ranks, lr=0.05, momentum=0.9)
    adam = schemes.plan(scheme, load, real.COST, ranks, optimizer="adam")
    kept, faults = conformance.prepare, ("", "parameter", "momentum", "statistics", "other rank's")
    largest = conformance.LARGEST_IN_FLOAT64
    for case, plan, conformance.LARGEST_IN_FLOAT64, tried in (
        ("float64", sgd, largest, faults),
        ("float32", sgd, 0, faults),
        ("adam", adam, 0, ("", "parameter", "second_moment")),
    ):
        for fault in tried:
            held = conformance.Held(loaded, model, models.get("resnet18").loss, 0, rank, groups, 3, [plan])
            conformance.prepare = partial(_losing, fault, kept)
            try:
                verdicts[case, fault] = held.against_oracle(plan)
            except RunError as error:
                verdicts[case, fault] = str(error)
    conformance.prepare = kept
    groups.close()
    return verdicts


def _losing(fault: str, kept: Any, plan: Plan, rank: int, groups: Groups, **how: Any) -> Executor:
    """An executor that loses what became of the last bias: on rank 1, or in its parameters on all ranks."""
    executor = kept(plan, rank, groups, **how)
    name = fault if fault in executor.buffers else "parameter"
    run, buffer = executor.run, executor.buffers[name]
    bias = plan.tensor["fc.bias"]
    part = buffer[:64] if name == "statistics" else buffer[bias.start : bias.stop]

    def lossy(*arguments: Any, **more: Any) -> None:
        before = part.clone()
        run(*arguments, **more)
        if fault and (rank == 1 or fault == "other rank's"):
            part.copy_(before)

    executor.run = lossy
    return executor
