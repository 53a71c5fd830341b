"""The workload of recorded ranks: means over steps and ranks, with intervals over steps and spreads over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from gradsync.errors import InputError
from gradsync.files.problems import first_problem
from gradsync.interchange.queue import Kernel, Queue
from gradsync.interchange.ranks import Clocks, Rank
from gradsync.interchange.sizes import Size
from gradsync.plan import DTYPE_BYTES
from gradsync.plan.workload import Layer, Workload
from gradsync.statistics.intervals import jackknife

PARTS = ("forward", "backward", "update")


def workload(name: str, ranks: Sequence[Rank], sizes: Sequence[Size], provenance: dict[str, Any]) -> Workload:
    """Layers in the order in which the first rank's gradients were ready; each has the time since the one before.

    Forward seconds of single layers are there if every gradient was joined with an operator of forward. Raises
    InputError for what no workload is: gradients of several types.
    """
    backward = np.array([_backward(rank) for rank in ranks])  # (ranks, steps, layers)
    means = backward.mean(axis=(0, 1))
    spread = np.ptp(backward.mean(axis=1), axis=0)  # (layers,)
    ahead = _ahead(ranks)
    totals = {part: _mean(ranks, part) for part in PARTS}
    layers = []
    for number, (size, seconds) in enumerate(zip(sizes, means.tolist(), strict=True)):
        layer: dict[str, Any] = {"name": size.name, "backward_seconds": seconds, "dtype": size.dtype}
        layer |= {"elements": size.elements, "bytes": size.elements * DTYPE_BYTES[size.dtype]}
        if ahead is not None:
            layer |= {"forward_seconds": ahead[number][1], "forward_index": ahead[number][0]}
        layers.append(Layer.model_validate(layer))
    spreads = {layer.name: float(each) for layer, each in zip(layers, spread, strict=True)}
    try:
        return Workload(
            name=name,
            forward_seconds=totals["forward"],
            update_seconds=totals["update"],
            layers=tuple(layers),
            provenance=provenance | ({"backward_spread_seconds": spreads} if len(ranks) > 1 else {}),
        )
    except ValidationError as error:
        raise InputError(f"trace {ranks[0].recording.where}: no workload: {first_problem(error, Workload)}") from None


def answer(ranks: Sequence[Rank], clocks: Clocks) -> dict[str, Any]:
    """What people read of steps and ranks: means with intervals of 95 %, imbalance, clocks."""
    told: dict[str, Any] = {"ranks": len(ranks), "steps": len(ranks[0].steps)}
    for part in (*PARTS, "computation", "whole"):
        values = np.array([[getattr(step, part) for step in rank.steps] for rank in ranks]).mean(axis=0)  # (steps,)
        others = [float(np.delete(values, i).mean()) for i in range(len(values)) if len(values) > 1]
        low, high = jackknife(float(values.mean()), others)
        key = "step" if part == "whole" else part
        told |= {f"{key}_seconds": float(values.mean()), f"{key}_low": low, f"{key}_high": high}
    if len(ranks) > 1:
        computed = [float(np.mean([step.computation for step in rank.steps])) for rank in ranks]
        told["imbalance"] = max(computed) / float(np.mean(computed))
        told["arrival_seconds"] = clocks.arrival_seconds
        told["of_ranks"] = [
            {"rank": rank.number, "computation_seconds": seconds, "clock_ahead": ahead}
            for rank, seconds, ahead in zip(ranks, computed, clocks.offsets, strict=True)
        ]
    return told


def busy_share(ranks: Sequence[Rank]) -> float | None:
    """The part of the steps in which a kernel ran, a message's too; None if the hosts themselves compute."""
    ran, whole = 0.0, 0.0
    for rank in ranks:
        clock = rank.recording.clock
        if isinstance(clock, Queue):
            messages = [Kernel(each.start, each.start, each.end) for each in rank.recording.messages]
            busy = Queue([*clock.kernels, *messages])
            for step in rank.steps:
                start, end = clock.reached(step.start), clock.reached(step.start + step.whole)
                ran += busy.busy(start, end)
                whole += end - start
    return ran / whole if whole else None


def _mean(ranks: Sequence[Rank], part: str) -> float:
    return float(np.mean([[getattr(step, part) for step in rank.steps] for rank in ranks]))


def _backward(rank: Rank) -> list[list[float]]:
    """Seconds of each gradient since the one before, in each step.  # (steps, layers)"""
    rows = []
    for step in rank.steps:
        ready = [step.forward, *(gradient.ready for gradient in step.gradients)]
        rows.append(np.diff(ready).clip(min=0.0).tolist())
    return rows


def _ahead(ranks: Sequence[Rank]) -> list[tuple[int, float]] | None:
    """Place in the order of forward, and seconds until forward needs the next parameter; None if that is not known.

    As in `runtime/forward_order.py`: of parameters that are needed together the last one has the time, and what comes
    before the first need belongs to that.
    """
    needs = [[[gradient.need for gradient in step.gradients] for step in rank.steps] for rank in ranks]
    if any(need is None for of_rank in needs for of_step in of_rank for need in of_step):
        return None
    moments = np.array(needs, float).mean(axis=(0, 1))  # (layers,)
    order = np.argsort(moments, kind="stable")
    begun = np.where(moments[order] == moments[order[0]], 0.0, moments[order])
    seconds = np.diff([*begun, _mean(ranks, "forward")]).clip(min=0.0)
    ahead: list[tuple[int, float]] = [(0, 0.0)] * len(order)
    for place, (layer, spent) in enumerate(zip(order.tolist(), seconds.tolist(), strict=True)):
        ahead[layer] = place, spent
    return ahead
