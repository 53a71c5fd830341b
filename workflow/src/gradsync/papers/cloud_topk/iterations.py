"""Fig. 1, Tables 3 and 4: iterations on 16 nodes of 8 GPUs, simulated over the band; measured, and Table 3 emulated.

Efficiency is over the published single GPU: Table 3 has its own, but that of Table 4 for ResNet-50 at 96 pixels, for
which the paper has no other (CT-E24). Dense-SGD and TopK-SGD update with the serial LARS or LAMB, 2DTAR-SGD and
MSTopK-SGD with PTO, at the published times. If the update is inside the single GPU's time, that is the serial one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk import emulated_runs, measured_runs
from gradsync.papers.cloud_topk.cases import (
    DENSE,
    MSTOPK,
    RESNETS,
    SCHEMES,
    TOPK,
    TORUS,
    Case,
    band,
    case,
    scaling,
)
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.cloud_topk.plans import Timed, alone, timed
from gradsync.papers.cloud_topk.testbed import BandPoint, Bench, bench
from gradsync.papers.published import Published
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, text
from gradsync.papers.table import Table

CASES = {
    "resnet50_224": "ResNet-50, 224 pixels",
    "resnet50_96": "ResNet-50, 96 pixels",
    "vgg19": "VGG-19",
    "transformer": "Transformer",
}  # of Table 3
TITLES = {**{name: f"ResNet-50, {name.rpartition('_')[2]} pixels" for name in RESNETS}, **CASES}
BREAKDOWN = ("resnet50_224", "resnet50_96")  # of Fig. 1
REPEATED = ("iteration_seconds", "exposed_communication_seconds", "throughput", "speedup", "efficiency")
KEYS = ["rung", "model", "scheme", "nodes", "workers", "assumption"]
TABLE3 = [
    *KEYS,
    *(
        "batch",
        "computation_seconds",
        "update_seconds",
        "compression_seconds",
        *REPEATED,
        "hard_bound_seconds",
        LAUNCH,
        REPEATS,
    ),
    *(f"{column}{end}" for end in (LOW, HIGH, SAMPLES) for column in REPEATED),
    "note",
]
FIG1 = [
    *KEYS,
    *("computation_seconds", "compression_seconds", "exposed_compression_seconds", "exposed_communication_seconds"),
    *("lars_seconds", "iteration_seconds", "hard_bound_seconds", "note"),
]


def table3(settings: Settings, results: Path) -> Table:
    """A row per model, scheme and point of the band; published ones, emulated ones of the stand-in, measured ones."""
    testbed = bench(settings)
    points = testbed.points
    contenders = (DENSE, TORUS, MSTOPK)
    rows = [
        *_published("table3", CASES, contenders, testbed, settings),
        *_simulated(testbed, settings, results, "table3", CASES, contenders, points),
        *emulated_runs.iterations(settings, results),
        *measured_runs.iterations("table3", settings, results),
    ]
    frame = pd.DataFrame(rows, columns=TABLE3)
    caption = _caption("Table 3", testbed, len(points))
    caption += " Emulated: four nodes of two GPUs, and a quarter of the Transformer."
    return Table(frame, _display(frame, str(points[0])), caption + emulated_runs.missing(frame) + _noted(frame))


def table4(settings: Settings, results: Path) -> Table:
    """A row per input size, scheme and point of the band; published and measured ones."""
    testbed = bench(settings)
    points = testbed.without_own()
    frame = pd.DataFrame(
        [
            *_published("table4", RESNETS, (TORUS, MSTOPK), testbed, settings),
            *_simulated(testbed, settings, results, "table4", RESNETS, (TORUS,), points),
            *_simulated(testbed, settings, results, "table4", RESNETS[:1], (MSTOPK,), points),
            *measured_runs.iterations("table4", settings, results),
        ],
        columns=TABLE3,
    )
    return Table(frame, _display(frame, str(points[0])), _caption("Table 4", testbed, len(points)) + _noted(frame))


def fig1(settings: Settings, results: Path) -> Table:
    """A row per input size, scheme and point of the band: the parts of an iteration."""
    testbed = bench(settings)
    points = testbed.without_own()
    known = schemes.load(settings.schemes)
    exact = testbed.file.positive("fig1", "value", "compression_seconds")
    rows = []
    for point in points:
        for model in BREAKDOWN:
            one = case(testbed, model, point, "table4")
            if model == BREAKDOWN[0]:  # the paper has forward and backward of this one alone
                one = one._replace(computation=testbed.file.positive("fig1", "value", "computation_seconds"))
            for scheme in (DENSE, TOPK, MSTOPK):
                time = _timed(testbed, known[scheme], one, point, results, exact)
                row = dict(zip(KEYS, _keys(testbed, model, scheme, str(point)), strict=True))
                rows.append(
                    row | {"computation_seconds": one.computation, "lars_seconds": one.update(scheme), **time._asdict()}
                )
    frame = pd.DataFrame(rows).assign(note="")[FIG1]
    caption = (
        "Fig. 1: milliseconds of an iteration of ResNet-50 on 128 GPUs by its parts, at the point that is drawn, in "
        "brackets over the band; communication and selection as far as computation does not hide them. Forward and "
        f"backward at 224 pixels and the exact top-k ({exact:g} s) are the paper's. Without I/O, whose time it has not."
    )
    return Table(frame, _fig1_display(frame, str(points[0])), caption)


def _simulated(
    testbed: Bench,
    settings: Settings,
    results: Path,
    table: str,
    models: Sequence[str] | dict[str, str],
    contenders: Sequence[str],
    points: list[BandPoint],
) -> Iterator[dict[str, Any]]:
    known = schemes.load(settings.schemes)
    for point in points:
        for model in models:
            one = case(testbed, model, point, table)
            for scheme in contenders:
                time = _timed(testbed, known[scheme], one, point, results)
                row = dict(zip(KEYS, _keys(testbed, model, scheme, str(point)), strict=True))
                row |= {"batch": one.batch, "computation_seconds": one.computation}
                row |= {"update_seconds": one.update(scheme), **time._asdict(), "note": ""}
                yield row | scaling(time.iteration_seconds, one.batch, one.rate, testbed.workers)


def _keys(testbed: Bench, model: str, scheme: str, assumption: str) -> tuple[Any, ...]:
    return "simulated", model, scheme, testbed.nodes, testbed.workers, assumption


def _timed(
    testbed: Bench, scheme: schemes.Scheme, one: Case, point: BandPoint, results: Path, exact: float = 0.0
) -> Timed:
    """An iteration, simulated once for all points that differ only in what makes no difference to it."""
    first = testbed.points[0]._asdict()
    idle = ["update", "transformer_batch", "vgg19_lars"]  # they are in the case
    if not scheme.compressor:
        idle.append("density")
    if not testbed.connection_matters(scheme.collective, point):
        idle.append("flow")
    point = point._replace(**{key: first[key] for key in idle})
    key = (scheme.name, one, point, exact)
    if key not in testbed.simulated:
        layers = testbed.workload(one.counted, point.wire, results)
        share = testbed.file.number("forward_share", "value")
        workload = alone(layers, one.computation, one.update(scheme.name), share)
        testbed.simulated[key] = timed(testbed, scheme, workload, point, exact)
    time: Timed = testbed.simulated[key]
    return time


def _published(
    table: str, models: Sequence[str] | dict[str, str], contenders: Sequence[str], testbed: Bench, settings: Settings
) -> Iterator[dict[str, Any]]:
    known = Published(PAPER, settings)
    units = {"samples per second": "throughput", "share": "efficiency"}
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for number, entry in known.entries.items():
        column = units.get(entry.get("unit", ""))
        if entry.get("table") == table and column and entry.get("nodes") == testbed.nodes and entry.get("scheme"):
            cells.setdefault((entry["model"], known.scheme(entry)), {})[column] = known.value(number)
    for model in models:
        for scheme in contenders:
            if (model, scheme) in cells:
                row = dict(zip(KEYS, ("published", *_keys(testbed, model, scheme, "")[1:]), strict=True))
                yield row | cells[model, scheme] | {"note": ""}


def _caption(place: str, testbed: Bench, points: int) -> str:
    return (
        f"{place}: samples per second and scaling efficiency over one GPU, {testbed.workers} GPUs. Simulated at the "
        f"point that is drawn, in brackets over {points} points of the band (testbed.yaml): network, what a connection "
        "gets, links and memory inside a node, 16- or 32-bit values, density, Horovod's buckets or a single message, "
        "whether the published time of one GPU has the update in it. If it has, PTO can save more than messages cost, "
        "and the efficiency is above 1."
    )


def _noted(frame: pd.DataFrame) -> str:
    """What is to be said of measured rows: sentences for a caption, or nothing."""
    notes = frame.note[(frame.rung == "measured") & (frame.note != "")]
    return f" Measured: {'; '.join(dict.fromkeys(notes))}." if len(notes) else ""


def _display(frame: pd.DataFrame, drawn: str) -> pd.DataFrame:
    rows, any_measured = [], bool((frame.rung == "measured").any())
    for (model, scheme, nodes), part in frame.groupby(["model", "scheme", "nodes"], sort=False):
        row = {"model": TITLES.get(str(model), str(model)), "scheme": SCHEMES.get(str(scheme), str(scheme))}
        row |= {"nodes": f"{nodes:.0f}"}
        published, simulated, emulated, measured = (
            part[part.rung == rung] for rung in ("published", "simulated", "emulated", "measured")
        )
        for title, column, form in (("throughput", "throughput", ",.0f"), ("efficiency", "efficiency", ".1%")):
            row[f"{title}, published"] = "-" if published.empty else format(published[column].iloc[0], form)
            row[f"{title}, simulated"] = band(simulated, column, drawn, form)
            if any_measured:
                row[f"{title}, measured"] = "-" if measured.empty else text(measured.iloc[0], column, form)
        known = emulated[emulated.iteration_seconds.notna()]
        row["emulated ms"] = "-" if known.empty else text(known.iloc[0], "iteration_seconds", ".1f", 1e3)
        if len(part.iteration_seconds.dropna()) or len(published):
            rows.append(row)
    return pd.DataFrame(rows)


def _fig1_display(frame: pd.DataFrame, drawn: str) -> pd.DataFrame:
    columns = {
        "computation_seconds": "forward and backward",
        "exposed_compression_seconds": "selection",
        "exposed_communication_seconds": "communication",
        "lars_seconds": "LARS",
        "iteration_seconds": "iteration",
    }
    rows = []
    for (model, scheme), part in frame.groupby(["model", "scheme"], sort=False):
        scaled = part.assign(**{column: 1e3 * part[column] for column in columns})
        row = {"model": TITLES[str(model)], "scheme": SCHEMES[str(scheme)]}
        rows.append(row | {title: band(scaled, column, drawn, ".1f") for column, title in columns.items()})
    return pd.DataFrame(rows)
