"""Fig. 7 and 8: the time of an aggregation by four methods, and the steps of HiTopKComm, as plans of one message.

HiTopKComm takes its selection and its sum besides; of NaiveAG communication alone counts, without its selection and its
sum. Dense methods have no density, so their rows stand for each.

Differs from the paper: Fig. 7 does not state its sizes, which are those of Fig. 6 here, nor Fig. 8 its densities.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.settings import Settings
from gradsync.engine.simulate import simulate
from gradsync.papers.cloud_topk import emulated_runs
from gradsync.papers.cloud_topk.plans import TURNS, one_message, planned, seconds_of, timed, with_kernels
from gradsync.papers.cloud_topk.steps import METHODS, STEP_NAMES, by_step
from gradsync.papers.cloud_topk.testbed import SINGLE, BandPoint, Bench, bench
from gradsync.papers.labels import MODELS
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, text
from gradsync.papers.table import Table

MSTOPK = "mstopk"
DRAWN = ("resnet50", "transformer")  # in Fig. 8
DENSITIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
TIMES = (
    *("seconds", "hard_bound_seconds"),
    LAUNCH,
    REPEATS,
    *(f"seconds{end}" for end in (LOW, HIGH, SAMPLES)),
    "note",
)
FIG7 = ["rung", "scheme", "elements", "nodes", "gpus_per_node", "density", "assumption", *TIMES]
FIG8 = ["rung", "model", "step", "density", "nodes", "gpus_per_node", "assumption", *TIMES]


def fig7(settings: Settings, results: Path) -> Table:
    """A row per method, size and point of the band; emulated rows of the stand-in."""
    testbed = bench(settings)
    frame = pd.DataFrame([*_methods(testbed, settings), *emulated_runs.methods(settings, results)], columns=FIG7)
    density = testbed.file.positive("density", "value", "fig7")
    caption = (
        f"Fig. 7: milliseconds of an aggregation on {testbed.workers} GPUs, density {density:g}, 16-bit values, "
        "simulated at the point that is drawn, in brackets over the band of links. HiTopKComm with its selection and "
        "its sum, NaiveAG without them. Emulated: 32-bit values, 4 nodes of 2 GPUs, at each density of the launches."
    )
    return Table(frame, _fig7_display(frame, testbed), caption + emulated_runs.missing(frame))


def _methods(testbed: Bench, settings: Settings) -> Iterator[dict[str, Any]]:
    known = schemes.load(settings.schemes)
    width = int(testbed.file.positive("element_bytes", "value", "fig7"))
    density = testbed.file.positive("density", "value", "fig7")
    for each in testbed.of_links():
        point = each._replace(wire=width, density=density, schedule=SINGLE)
        for name in METHODS:
            scheme = _by_mstopk(known[name]) if name == "hitopk" else known[name]
            for elements in map(int, testbed.file.numbers("elements", "value")):
                time = timed(testbed, scheme, one_message(elements, width), point)
                alone = name == "allgather_sparse"
                seconds = time.iteration_seconds - (time.sum_seconds if alone else 0.0)
                row = {"rung": "simulated", "scheme": name, "elements": elements, "density": density}
                row |= {"nodes": testbed.nodes, "gpus_per_node": testbed.gpus, "assumption": ", ".join(point.links)}
                yield row | {"seconds": seconds, "hard_bound_seconds": time.hard_bound_seconds, "note": ""}


def fig8(settings: Settings, results: Path) -> Table:
    """A row per model, step, density and point of the band; emulated rows of the stand-in."""
    testbed = bench(settings)
    frame = pd.DataFrame([*_steps(testbed, settings), *emulated_runs.steps(settings, results)], columns=FIG8)
    caption = (
        "Fig. 8: milliseconds of the steps of HiTopKComm, 32-bit values, simulated at the point that is drawn, in "
        "brackets over the band of links; the All-Gather between nodes is both, of values and of indices."
    )
    return Table(frame, _fig8_display(frame, testbed), caption + emulated_runs.missing(frame))


def _steps(testbed: Bench, settings: Settings) -> Iterator[dict[str, Any]]:
    scheme = _by_mstopk(schemes.load(settings.schemes)["hitopk"])
    width = int(testbed.file.positive("element_bytes", "value", "fig8"))
    for each in testbed.of_links():
        for model in DRAWN:
            workload = one_message(int(testbed.file.positive("parameters", "value", model)), width)
            for density in DENSITIES:
                point = each._replace(wire=width, density=density, schedule=SINGLE)
                for step, seconds in _seconds_of_steps(testbed, scheme, workload, point).items():
                    row = {"rung": "simulated", "model": model, "step": step, "density": density}
                    row |= {"nodes": testbed.nodes, "gpus_per_node": testbed.gpus}
                    yield row | {"assumption": ", ".join(point.links), "seconds": seconds, "note": ""}


def _seconds_of_steps(testbed: Bench, scheme: Scheme, workload: Any, point: BandPoint) -> dict[str, float]:
    plan = planned(testbed, scheme, workload, point)
    kernels = with_kernels(testbed, plan, workload, point, 0.0)
    trace = simulate(plan, kernels, testbed.network(scheme.collective, point), turns=TURNS)
    return by_step(seconds_of(trace, {op.name for op in plan.roles[0].flat}))


def _by_mstopk(scheme: Scheme) -> Scheme:
    """The paper's selection instead of the exact one."""
    return scheme.model_copy(update={"compressor": MSTOPK})


def _fig7_display(frame: pd.DataFrame, testbed: Bench) -> pd.DataFrame:
    drawn = ", ".join(testbed.points[0].links)
    rows = []
    for (rung, _, nodes, density), part in frame.groupby(["rung", "elements", "nodes", "density"], sort=False):
        if part.seconds.notna().any():
            millions = f"{part.elements.iloc[0] / 1e6:g}"
            row = {"rung": rung, "million elements": millions, "nodes": nodes, "density": f"{density:g}"}
            rows.append(row | {name: _shown(part[part.scheme == key], drawn) for key, name in METHODS.items()})
    return pd.DataFrame(rows)


def _fig8_display(frame: pd.DataFrame, testbed: Bench) -> pd.DataFrame:
    drawn = ", ".join(testbed.points[0].links)
    rows = []
    for (rung, model, density), part in frame.groupby(["rung", "model", "density"], sort=False):
        if part.seconds.notna().any():
            row = {"rung": rung, "model": MODELS[str(model)], "density": f"{density:g}"}
            rows.append(row | {title: _shown(part[part.step == step], drawn) for step, title in STEP_NAMES.items()})
    return pd.DataFrame(rows)


def _shown(at: pd.DataFrame, drawn: str) -> str:
    """Milliseconds at the point that is drawn, and over the band; with an interval if they are timed."""
    if at.empty or at.seconds.isna().all():
        return "-"
    middle = at[at.assumption == drawn]
    if middle.empty:
        return text(at.iloc[0], "seconds", ".3g", 1e3)
    least, most = (f"{1e3 * end:.3g}" for end in (at.seconds.min(), at.seconds.max()))
    cell = f"{1e3 * middle.seconds.iloc[0]:.3g}"
    return cell if least == most else f"{cell} ({least} .. {most})"
