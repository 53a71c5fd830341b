"""How fast planning and simulating are, on synthetic networks of the papers' sizes; a program of its own.

Targets (seconds on one core): 604 tensors (DenseNet-201) planned by `optimal` and by `mgwfbp`, 0.05 each, by `optimal`
and `pipelined` with messages that computation slows, 0.1 each, and by the schedules of several lanes, on a line and on
a cost that is fitted to measurements, 0.2 each; one iteration of 64 ranks with 161 tensors (ResNet-50), every rank
simulated, 1; 604 messages over 16 lanes that share a link, simulated until the period is steady, 0.1. Ratios are to a
fixed loop of plain Python in the same run, so that machines can be compared.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gradsync.benchmarks import rows
from gradsync.configuration import schemes
from gradsync.costs import MessageCost, Network, alpha_beta, fitted
from gradsync.costs.beside import Beside
from gradsync.costs.contention import Contended
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine.simulate import simulate
from gradsync.plan.workload import Layer, Workload

REPEATS = 7
SHARE = 0.6  # of its link: what a message alone gets
HOST_SECONDS = 1e-5  # of a start-up
SLOWED = Interference(
    points=(
        InterferencePoint(bytes=1024, computation=1.02, communication=1.3),
        InterferencePoint(bytes=10**7, computation=1.3, communication=1.8),
    ),
    handover_seconds=2e-4,
)


def network_of(tensors: int, seed: int = 0) -> Workload:
    """Log-uniform sizes between 256 B and 8 MB, exponential backward times of 0.2 s together."""
    random = np.random.default_rng(seed)
    sizes = 4 * np.exp(random.uniform(np.log(64), np.log(2e6), tensors)).astype(int)
    times = random.exponential(0.2 / tensors, tensors)
    layers = tuple(
        Layer(name=f"tensor{i}", bytes=int(size), backward_seconds=float(seconds))
        for i, (size, seconds) in enumerate(zip(sizes, times, strict=True))
    )
    return Workload(name=f"synthetic-{tensors}", forward_seconds=0.1, layers=layers)


def bent(line: MessageCost, largest: float, seed: int = 0) -> fitted.Fitted:
    """A fit of several pieces: above 64 KiB messages start up four times as slowly, all times are 1 % off."""
    sizes = np.geomspace(256, largest, 40)
    jump = np.where(sizes > 2**16, 3 * line.startup_seconds(0.0), 0.0)
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(len(sizes))
    return fitted.fit(sizes, (line.seconds(sizes) + jump) * noise, source="synthetic")


def measure() -> dict[str, Any]:
    """Medians of several repeats in turn, their targets, and whether all were met."""
    big, small = network_of(604), network_of(161)
    network = alpha_beta.network(64, 45.26e-6, 8e-10)
    cost = network.of("all_reduce")
    plan = schemes.plan(schemes.Scheme(name="wfbp"), small, cost, 64)
    plan_of_lanes = schemes.plan(schemes.Scheme(name="wfbp", options={"lanes": 16}), big, cost, 64)
    contended = Network({**network.costs, "all_reduce": Contended(cost, 1 / SHARE)})
    costs = {
        "a line": Contended(cost, 1 / SHARE),
        "a fitted cost": Contended(bent(cost, big.bytes), 1 / SHARE, HOST_SECONDS),
    }
    # workloads that differ by rank, so that no rank stands for the others
    workloads = {rank: small.model_copy(update={"forward_seconds": 0.1 + 1e-4 * rank}) for rank in range(64)}

    def planned(name: str, cost: MessageCost = cost) -> Callable[[], object]:
        return lambda: schemes.plan(schemes.Scheme(name=name), big, cost, 64)

    tasks: dict[str, tuple[Callable[[], object], float | None]] = {
        "optimal, 604 tensors": (planned("optimal"), 0.05),
        "mgwfbp, 604 tensors": (planned("mgwfbp"), 0.05),
        **{
            f"{name}, 604 tensors, beside computation": (planned(name, Beside(cost, SLOWED)), 0.1)
            for name in ("optimal", "pipelined")
        },
        **{
            f"{name}, 604 tensors, {kind}": (planned(name, contended_cost), 0.2)
            for name in ("ascwfbp", "kway", "striped", "searched")
            for kind, contended_cost in costs.items()
        },
        "one iteration of 64 ranks, 161 tensors, wfbp": (lambda: simulate(plan, workloads, network, turns=1), 1.0),
        "604 messages over 16 lanes, until steady": (lambda: simulate(plan_of_lanes, big, contended), 0.1),
        "a million additions in plain Python": (lambda: sum(range(1_000_000)), None),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    gc.collect()
    gc.freeze()  # the objects of torch and its like, which no task looks through again: that takes longer than a task
    for _ in range(REPEATS):
        for name, (task, _) in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    gc.unfreeze()
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    base = medians["a million additions in plain Python"]
    return rows.result(
        [
            rows.timed(name, {"seconds": medians[name]}, medians[name] / base, target)
            for name, (_, target) in tasks.items()
        ]
    )
