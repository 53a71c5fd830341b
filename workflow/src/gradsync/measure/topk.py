"""Measure what the compressors take to select, in turn: the points of `costs/selection_times.py`.

In each round every compressor selects from the same vector of standard normal 32-bit numbers; every second round has
them in reverse order. Before the rounds each selects once, which pays for memory and gives what is said of the
selection itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
import torch

from gradsync import compressors
from gradsync.costs.selection_times import SelectionPoint, SelectionTimes
from gradsync.errors import InputError, RunError
from gradsync.runtime import selection
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.runtime.selection import keys, mstopk
from gradsync.statistics.intervals import median_interval, shown

# Bytes of the vector (4), of its magnitudes (4), of the pairs that torch.topk sorts (16), of masks and places (4)
BYTES_PER_ELEMENT = 28
Row = dict[str, Any]


def refuse_memory(elements: int, device: Device = PROCESSOR) -> None:
    """Raises InputError if the vector, and what a selection takes besides, has no room."""
    own = device.free_bytes()
    free = float(psutil.virtual_memory().available) if own is None else own
    if (needed := BYTES_PER_ELEMENT * elements) > free:
        where = "the machine" if own is None else "the GPU"
        raise InputError(
            f"--elements {elements}: selections need about {needed / 1e9:.3g} GB of memory, {free / 1e9:.3g} GB of "
            f"{where} are free: at most {int(free / BYTES_PER_ELEMENT)}"
        )


def measure(
    lengths: Sequence[int],
    density: float,
    *,
    names: Sequence[str],
    rounds: int,
    iterations: int,
    device: Device = PROCESSOR,
) -> SelectionTimes:
    """Times of these compressors on vectors of these lengths; k is at least 1.

    A compressor that fails on a vector (`mstopk_as_printed` may) has no point of it, but a note.
    """
    others, points, notes = OtherWork(), list[SelectionPoint](), list[str]()
    for elements in lengths:
        refuse_memory(elements, device)
        k = max(1, round(density * elements))
        of_length, failed = _points(elements, k, names, rounds, iterations, device)
        points += of_length
        notes += failed
    if not points:
        raise RunError("measure topk: no compressor selected anything: " + "; ".join(notes))
    return SelectionTimes(
        device="cuda" if device.queued else "cpu",
        density=density,
        points=tuple(points),
        notes=tuple(notes),
        provenance={
            "measured": f"{rounds} rounds, in each the mean of {iterations} selection(s); compressors in turn",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            **_kernels(device),
            **machines(),
            **others.share(),
            **device.provenance(),
        },
    )


def _points(
    elements: int, k: int, names: Sequence[str], rounds: int, iterations: int, device: Device
) -> tuple[list[SelectionPoint], list[str]]:
    values = torch.randn(elements, generator=torch.Generator().manual_seed(elements)).to(device.torch_device)
    best = keys(values[selection.get("exact_topk")(values, k, turn=0)]).min()
    chosen, notes = dict[str, tuple[int, float]](), list[str]()
    for name in names:
        try:
            positions = selection.get(name)(values, k, turn=0)
        except RunError as error:
            notes.append(str(error))
            continue
        recall = float((keys(values[positions]) >= best).double().mean())
        chosen[name] = (len(positions), recall)
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in range(1, rounds + 1):
        for name in list(chosen)[:: 1 if turn % 2 else -1]:
            device.synchronize()
            start = device.mark()
            for _ in range(iterations):
                selection.get(name)(values, k, turn=turn)
            end = device.mark()
            device.synchronize()
            seconds[name].append(device.seconds(start, end) / iterations)
    print(f"measure topk: {k} of {elements} elements, {rounds} rounds", file=sys.stderr, flush=True)
    return [
        SelectionPoint(
            compressor=name, elements=elements, k=k, selected=selected, recall=recall, seconds=tuple(seconds[name])
        )
        for name, (selected, recall) in chosen.items()
    ], notes


def rows(times: SelectionTimes) -> list[Row]:
    """For each point the medians, with intervals, of its seconds and of the ratios to exact_topk, round by round."""
    exact = {point.elements: point.seconds for point in times.points if point.compressor == "exact_topk"}
    answer: list[Row] = []
    for point in times.points:
        low, middle, high = median_interval(point.seconds)
        row = {**point.model_dump(exclude={"seconds"}), "seconds": middle, "seconds_low": low, "seconds_high": high}
        if point.elements in exact:
            ratios = np.divide(point.seconds, exact[point.elements])
            row |= dict(zip(("ratio_low", "ratio", "ratio_high"), median_interval(ratios), strict=True))
        answer.append(row)
    return answer


def columns(times: SelectionTimes) -> str:
    """The rows as text for people: milliseconds, and times as parts of those of exact_topk."""

    def interval(row: Row, key: str, form: str, scale: float = 1.0) -> str:
        ends = (row.get(each) for each in (key, f"{key}_low", f"{key}_high"))
        return shown([None if end is None else float(end) for end in ends], form, scale)

    lines: list[tuple[str, ...]] = [
        ("compressor", "elements", "k", "selected", "recall", "milliseconds", "over exact_topk")
    ]
    for row in rows(times):
        counted = (str(row[key]) for key in ("compressor", "elements", "k", "selected"))
        recall = f"{row['recall']:.4f}"
        lines.append((*counted, recall, interval(row, "seconds", ".3f", 1e3), interval(row, "ratio", ".3f")))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def all_names() -> tuple[str, ...]:
    """Every compressor that selects, in the order in which they take turns."""
    return tuple(compressors.selecting())


def _kernels(device: Device) -> dict[str, str]:
    """What `mstopk` runs on a GPU."""
    if not device.queued:
        return {}
    served = mstopk.kernels_on(device.torch_device) is not None
    return {"mstopk": "kernels in Triton" if served else "torch.topk"}
