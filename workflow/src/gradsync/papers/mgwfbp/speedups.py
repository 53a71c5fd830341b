"""Fig. 6(a), 7(a) and 8: speed-up and exposed communication on 2 to 8 nodes: published, simulated and measured.

Differs from the paper: measured are this machine's ranks on small images, against one rank; the paper's nodes have two
GPUs each and its speed-ups are over one node. Whatever the machine can't decide has a row with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.files.results import TIMED, Result
from gradsync.papers.emulated import NO_LAUNCH, runs
from gradsync.papers.labels import MODELS
from gradsync.papers.mgwfbp import simulated_testbed, testbed
from gradsync.papers.mgwfbp.emulation import on_paper_links
from gradsync.papers.mgwfbp.settings import paper_settings
from gradsync.papers.mgwfbp.simulated_testbed import PARAMETER_SERVER
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, cells, of_a_quiet_machine, text
from gradsync.papers.simulated import BOUNDS, unsteady
from gradsync.papers.table import Table, file, read
from gradsync.papers.training import contenders, repeated

TIMES = (
    "iteration_seconds",
    "exposed_communication_seconds",
    "waiting_seconds",
    "speedup",
    "efficiency",
)  # what is repeated
COLUMNS = [
    *("rung", "model", "nodes", "scheme", "assumption", LAUNCH, REPEATS),
    *("iteration_seconds", "computation_seconds", "busy_computation_seconds"),
    *("exposed_communication_seconds", "waiting_seconds", "speedup", "efficiency", *BOUNDS, "note"),
    *(f"{column}{end}" for end in (LOW, HIGH, SAMPLES) for column in TIMES),
]
COMPUTATION = ("computation_seconds", "busy_computation_seconds")


def fig6(settings: Settings, results: Path) -> Table:
    """Fig. 6(a): GoogLeNet."""
    assumed = (
        "layer times of the authors' log, t_f what the published throughput of one node leaves beside its t_b, the "
        "all-reduce as in the benchmark logs (above 1 MiB extrapolated), as in the layer log, or at line rate"
    )
    return _speedups("Fig. 6(a)", "googlenet", settings, results, assumed)


def fig7(settings: Settings, results: Path) -> Table:
    """Fig. 7(a): ResNet-50."""
    shares = paper_settings(settings).forward_shares
    assumed = (
        "layer shares as measured on this machine's processor, t_f + t_b from the published throughput of one node, "
        f"t_f from {min(shares):g} to {max(shares):g} t_b, the all-reduce as in the benchmark logs (above 1 MiB "
        "extrapolated), as in GoogLeNet's layer log, or at line rate"
    )
    return _speedups("Fig. 7(a)", "resnet50", settings, results, assumed)


def fig8(settings: Settings, results: Path) -> Table:
    """Fig. 8: computation and exposed communication of both models."""
    googlenet, resnet50 = (
        part[part.scheme != PARAMETER_SERVER]
        for part in (read(file(results, "mgwfbp", name), COLUMNS) for name in ("fig6", "fig7"))
    )
    # claims go over both models at one point of the band: GoogLeNet is the same at each forward time of ResNet-50
    labels = [*resnet50.assumption.unique()]
    points = pd.DataFrame({"point": labels, "assumption": [label.split(", ")[-1] for label in labels]})
    crossed = googlenet.merge(points, on="assumption")
    frame = pd.concat([crossed.assign(assumption=crossed.point)[COLUMNS], resnet50], ignore_index=True)
    caption = (
        "Fig. 8: computation (t_f + t_b) + exposed communication of an iteration in ms; in brackets the band of the "
        "latter over what the paper does not give, of what was timed its 95 %. Published: from the throughputs that "
        "the figures are drawn from, computation being the iteration of one node, as the authors have it. Measured: "
        "computation is the iteration without any communication; beside messages on the same cores it takes longer "
        "(column busy). Emulated: computation is what is replayed."
    )
    return Table(frame, _display(frame, _composition), caption + unsteady(frame) + _reasons(frame))


def _speedups(place: str, model: str, settings: Settings, results: Path, assumed: str) -> Table:
    rows = [
        *_published(model, settings),
        *_drawn_without_numbers(model),
        *simulated_testbed.rows(model, settings, results),
        *_emulated(model, settings, results),
        *_measured(model, settings, results),
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    caption = (
        f"{place}, {MODELS[model]}: speed-up over one node (measured here: over one rank). Published: from the "
        "throughputs that the authors' script draws the figure from; it has none of TensorFlow with parameter servers "
        f"({PARAMETER_SERVER}). Simulated, at "
        f"{simulated_testbed.CENTRES[model == 'resnet50']} and in brackets over the band: {assumed}; messages longer "
        "than any in a log are extrapolated (column note). Of the parameter servers (one a node, whole tensors in "
        "turn, any number on their way) the transfers alone are simulated, nothing of TensorFlow's own time. "
        "Emulated: real messages over limited links on this machine at that point, computation replayed (table "
        "emulated). "
        "Measured: ranks on this machine on small images, with 95 % intervals; not the paper's cluster."
    )
    return Table(frame, _display(frame, _speedup), caption + unsteady(frame) + _reasons(frame))


def _published(model: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """The throughputs that the figures are drawn from, as seconds and speed-ups."""
    drawn = testbed.throughput(settings, model)
    for n in testbed.NODES:
        for scheme in testbed.DRAWN:
            seconds = drawn.iteration_seconds(scheme, n)
            yield {
                "rung": "published",
                "model": model,
                "nodes": n,
                "scheme": scheme,
                "iteration_seconds": seconds,
                "computation_seconds": drawn.alone_seconds,
                "exposed_communication_seconds": seconds - drawn.alone_seconds,
                "speedup": n * drawn.alone_seconds / seconds,
                "efficiency": drawn.alone_seconds / seconds,
            }


def _measured(model: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """The runs of this machine; a row with the reason if there is none, or if the ranks were more than the cores."""
    jobs = {job.ranks: job for job in settings.of("mgwfbp") if job.model == model}
    for n in sorted({*testbed.NODES, *jobs}):
        base = {"rung": "measured", "model": model, "nodes": n}
        if n not in jobs:
            for scheme in simulated_testbed.compared(settings):
                note = f"no training of {model} on {n} ranks in this configuration"
                yield {**base, "scheme": scheme.name, "note": note}
            continue
        folder = results / "runs" / "train" / jobs[n].job
        trained = contenders(folder)
        if PARAMETER_SERVER not in trained:
            yield {**base, "scheme": PARAMETER_SERVER, "note": f"no {PARAMETER_SERVER} in the launch of {n} ranks"}
        for name in trained:
            result = Result.load(folder / name / "result.json")
            row = {**base, "scheme": name, "note": "; ".join(result.notes)}
            cores = result.provenance.get("cores", 0)
            if n > cores and result.settings.get("device", "cpu") == "cpu":
                yield {**row, "note": f"{n} ranks share {cores} cores: a speed-up is not decidable on this machine"}
            else:
                times = {column: result.summary.get(column) for column in (*TIMES, *COMPUTATION)}
                timed = row | times | {LAUNCH: jobs[n].job} | repeated(result)
                yield of_a_quiet_machine(timed, result.notes)


def _emulated(model: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """The emulated launches; a row with the reason if there is none."""
    launches = {launch.ranks: launch for launch in on_paper_links(settings) if launch.model == model}
    for n in sorted({*testbed.NODES, *launches}):
        base = {"rung": "emulated", "model": model, "nodes": n, "assumption": ""}
        emulated_runs, reason = runs(launches[n], results) if n in launches else ([], NO_LAUNCH)
        compared = [scheme.name for scheme in simulated_testbed.compared(settings)]
        for name in compared if reason else {PARAMETER_SERVER} - {run.name for run in emulated_runs}:
            yield {**base, "scheme": name, "note": reason or f"{name} is not in the launches"}
        for run in emulated_runs:
            computation_seconds = run.computation_seconds
            row = {
                **base,
                **run.repeated(),
                "scheme": run.name,
                "computation_seconds": computation_seconds,
                "busy_computation_seconds": run.seconds("busy_computation_seconds"),
                **cells("exposed_communication_seconds", run.exposed()),
                **cells("waiting_seconds", run.samples("waiting_seconds")),
                **cells("speedup", n * computation_seconds / run.samples()),
                **cells("efficiency", computation_seconds / run.samples()),
                "note": "; ".join([*run.result.notes, f"time {run.launch.dilation:g} times slower"]),
            }
            yield of_a_quiet_machine(row, run.result.notes)


def _drawn_without_numbers(model: str) -> Iterator[dict[str, Any]]:
    """TensorFlow with parameter servers, which the paper draws."""
    for n in testbed.NODES:
        note = "drawn in the paper, without a number"
        yield {"rung": "published", "model": model, "nodes": n, "scheme": PARAMETER_SERVER, "note": note}


def _display(frame: pd.DataFrame, shown: Callable[[pd.DataFrame], str]) -> pd.DataFrame:
    """A row per model, rung and scheme, a column per number of nodes; schemes of a rung without any value share one."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for keys, part in frame.groupby(["model", "rung", "scheme"], sort=False):
        model, rung, scheme = map(str, keys)
        label = scheme if part.iteration_seconds.notna().any() or scheme == PARAMETER_SERVER else "every scheme"
        rows[model, rung, label] = {"model": model, "rung": rung, "scheme": label} | {
            f"N={n}": shown(at) if at.iteration_seconds.notna().any() else "-" for n, at in part.groupby("nodes")
        }
    display = pd.DataFrame(rows.values()).fillna("-")
    return display.drop(columns="model") if display.model.nunique() == 1 else display


def _reasons(frame: pd.DataFrame) -> str:
    """Why values are missing, in one sentence."""
    missing = frame[frame.iteration_seconds.isna()]
    sentences = [f"{rung}: {'; '.join(part.note.unique())}" for rung, part in missing.groupby("rung", sort=False)]
    return f" Missing (-): {'. '.join(sentences)}." if sentences else ""


def _centre(at: pd.DataFrame) -> pd.Series:
    """The row that stands for a band: the centre, or else the first with a value."""
    known = at[at.iteration_seconds.notna()]
    middle = known[known.assumption.isin(simulated_testbed.CENTRES)]
    return (known if middle.empty else middle).iloc[0]


def _speedup(at: pd.DataFrame) -> str:
    middle = _centre(at)
    if len(at) > 1:
        return f"{middle.speedup:.2f} ({at.speedup.min():.2f} .. {at.speedup.max():.2f})"
    if middle.rung in TIMED:
        return text(middle, "speedup", ".2f")
    return "-" if pd.isna(middle.speedup) else f"{middle.speedup:.2f}"


def _composition(at: pd.DataFrame) -> str:
    middle, exposed = _centre(at), 1e3 * at.exposed_communication_seconds
    if pd.isna(middle.computation_seconds) or pd.isna(middle.exposed_communication_seconds):
        return "-"
    computed = f"{1e3 * middle.computation_seconds:.0f} + "
    if middle.rung in TIMED:
        return computed + text(middle, "exposed_communication_seconds", ".0f", 1e3)
    computed += f"{1e3 * middle.exposed_communication_seconds:.0f}"
    return computed if len(at) == 1 else f"{computed} ({exposed.min():.0f} .. {exposed.max():.0f})"
