"""Measurements that the authors of MG-WFBP published as logs, carried over as two small tables of this repository.

The tables hold the numbers that figures and claims need, and say which file they come from and how they were reduced.
`gradsync external` computes them again from the logs, for somebody who has these.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.plan.workload import Layer, Workload

LAYERS = Path("config/papers/mgwfbp/layers.csv")
ALLREDUCES = Path("config/papers/mgwfbp/allreduces.csv")
LAYER_COLUMNS = ("elements", "backward_microseconds", "allreduce_microseconds")
ALLREDUCE_COLUMNS = ("nodes", "bytes", "microseconds")


class LoggedLayer(NamedTuple):
    """A weight and its bias in one iteration of training; the first of several is next to the input."""

    elements: int
    backward_microseconds: float
    allreduce_microseconds: float


class LoggedAllreduce(NamedTuple):
    """A point of a benchmark of the all-reduce."""

    nodes: int
    bytes: int
    microseconds: float


def layers() -> list[LoggedLayer]:
    """The layers of GoogLeNet; raises InputError with file and line if one can't be read."""
    return [LoggedLayer(int(row[0]), row[1], row[2]) for row in _rows(LAYERS, LAYER_COLUMNS, counts=1)]


def benchmark() -> list[LoggedAllreduce]:
    """All points of the benchmark; raises InputError with file and line if one can't be read."""
    return [LoggedAllreduce(int(row[0]), int(row[1]), row[2]) for row in _rows(ALLREDUCES, ALLREDUCE_COLUMNS, counts=2)]


def layer_log(*, forward_share: float) -> Workload:
    """The workload of GoogLeNet; `forward_share`: t_f as a share of t_b, which the log does not hold."""
    in_order = [
        Layer(
            name=f"layer{number}",
            bytes=4 * layer.elements,
            elements=layer.elements,
            backward_seconds=layer.backward_microseconds * 1e-6,
        )
        for number, layer in enumerate(layers())
    ]
    t_b = sum(layer.backward_seconds for layer in in_order)
    return Workload(
        name="googlenet",
        forward_seconds=forward_share * t_b,
        layers=tuple(reversed(in_order)),
        provenance={
            "measured": "third party: B-Caffe log tmp8comm.log, GoogLeNet, batch 64, Tesla K80, 8 nodes, 10 GbE",
            "assumed": f"forward seconds: {forward_share:g} of the backward seconds (not in the log)",
        },
    )


def layer_allreduces() -> tuple[np.ndarray, np.ndarray]:
    """(bytes, seconds) of the all-reduce of each layer of GoogLeNet on 8 nodes, as training waited for it."""
    logged = layers()
    return (
        np.array([4.0 * layer.elements for layer in logged]),
        np.array([layer.allreduce_microseconds * 1e-6 for layer in logged]),
    )


def allreduces(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """(bytes, seconds) of the benchmark on 2 or 8 nodes."""
    points = [point for point in benchmark() if point.nodes == nodes]
    if not points:
        raise InputError(f"{ALLREDUCES}: no row of {nodes} nodes: restore the file")
    return (
        np.array([float(point.bytes) for point in points]),
        np.array([point.microseconds * 1e-6 for point in points]),
    )


def _rows(path: Path, columns: tuple[str, ...], *, counts: int) -> list[list[float]]:
    """Rows of numbers below comments and a head; the first `counts` are whole and positive, no other is negative."""
    lines = reading.text(path, "published measurements").splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not numbered or tuple(numbered[0][1].split(",")) != columns:
        raise InputError(f"{path}: not published measurements: its head must be {','.join(columns)}: restore the file")
    rows = []
    numbers, texts = [number for number, _ in numbered[1:]], [line for _, line in numbered[1:]]
    for number, cells in zip(numbers, csv.reader(texts), strict=True):
        try:
            row = [float(cell) for cell in cells]
        except ValueError:
            row = []
        whole = all(value >= 1 and value.is_integer() for value in row[:counts])
        if len(row) != len(columns) or not whole or not all(math.isfinite(value) and value >= 0 for value in row):
            raise InputError(f"{path}, line {number}: not a row {','.join(columns)}: restore the file")
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: holds no row: restore the file")
    return rows
