"""Fig. 6 and 7: job completion times of LeNet-5 and VGG-19, BML on BCube(3,2) against PS on one switch.

Simulated on the paper's testbed over a band of what it does not publish: how fast a server computes, what share of a
link's rate gradients get, and the start-up of a message (`testbed.py`).

Differs from the paper: no cost of TensorFlow itself, of copies to a GPU, or of the update. Measured are ranks of this
machine at reduced size: their links are one loopback, so that no claim is decided on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.collectives import NATIVE
from gradsync.configuration.launches import Training
from gradsync.configuration.settings import Settings
from gradsync.files.results import TIMED, Result
from gradsync.papers.bml_bcube.testbed import BML, EVEN, TENSORS, BandPoint, Bench, bench
from gradsync.papers.emulated import NO_LAUNCH, Run, runs
from gradsync.papers.labels import MODELS
from gradsync.papers.repeats import (
    HIGH,
    LAUNCH,
    LOW,
    REPEATS,
    SAMPLES,
    cells,
    ends,
    interval,
    of_a_quiet_machine,
    paired,
    text,
)
from gradsync.papers.simulated import BOUNDS, unsteady
from gradsync.papers.table import Table
from gradsync.plan.workload import Workload

REDUCED = {"lenet5": ("lenet5",), "vgg19": ("vgg19", "vgg19_eighth")}  # measured in the place of a model of the paper
PUBLISHED = {"lenet5": "18.7 to 56.4 %", "vgg19": "29.2 to 52.1 %"}  # Section 4.3
REDUCTIONS = {"reduction_of_ps": EVEN, "reduction_of_tf_ps": TENSORS}
TIMES = ("iteration_seconds", "exposed_communication_seconds", "jct_seconds", *REDUCTIONS)  # what is repeated
COLUMNS = [
    *("rung", "model", "nodes", "batch", "batch_here", "scheme", "assumption", LAUNCH, REPEATS),
    *("computation_seconds", *TIMES, *BOUNDS, "oracle_difference", "note"),
    *(f"{column}{end}" for end in (LOW, HIGH, SAMPLES) for column in TIMES),
]
ONE_NETWORK = "what has links of its own in the paper shares one network here: not decidable on this machine"


def fig6(settings: Settings, results: Path) -> Table:
    """Fig. 6: LeNet-5."""
    return _completion("Fig. 6", "lenet5", settings, results)


def fig7(settings: Settings, results: Path) -> Table:
    """Fig. 7: VGG-19."""
    return _completion("Fig. 7", "vgg19", settings, results)


def _completion(place: str, model: str, settings: Settings, results: Path) -> Table:
    testbed = bench(settings, model)
    frame = pd.DataFrame(
        [
            *_simulated(testbed, model, Workload.load(results / "counted" / model / "workload.json")),
            *_undecided(testbed, model, settings),
            *_emulated(testbed, model, settings, results),
            *_measured(model, settings, results),
        ],
        columns=COLUMNS,
    )
    measured = frame[(frame.rung == "measured") & frame.iteration_seconds.notna()]
    caption = (
        f"{place}, {MODELS[model]} on {testbed.servers} servers: seconds of {testbed.iterations:g} iterations "
        "(measured: milliseconds of one) by sub-minibatch of a server, and by how much BML's are fewer than those of "
        "PS that splits every tensor evenly (ps) and of PS with whole tensors on servers (tensors). Simulated: at "
        f"{testbed.centre()}, in brackets the band over {_span(testbed.shares_of_peak)} of the GPUs' peak, "
        f"{_span(testbed.shares_of_link)} of the link rate and alpha from {_span(testbed.alphas)} s. Published, "
        f"heights of bars not given: reduction {PUBLISHED[model]}."
    )
    if not measured.empty:
        caption += f" Measured on this machine, {_sizes(measured)}: {measured.note.iloc[0]}."
    return Table(frame, _display(frame, testbed), caption + unsteady(frame))


def _simulated(testbed: Bench, model: str, counted: Workload) -> Iterator[dict[str, Any]]:
    for point in testbed.points():
        for batch in testbed.batches:
            simulated = testbed.iterations_of(point, counted, batch)
            for scheme, iteration in simulated.items():
                seconds = iteration.iteration_seconds
                row = {"rung": "simulated", "model": model, "nodes": testbed.servers, "batch": batch, "scheme": scheme}
                row |= {"assumption": str(point), **iteration._asdict()}
                row |= {"computation_seconds": seconds - iteration.exposed_communication_seconds}
                row |= {"jct_seconds": testbed.iterations * seconds}
                if scheme == BML:
                    ps_seconds = {column: simulated[other].iteration_seconds for column, other in REDUCTIONS.items()}
                    row |= {column: 1 - seconds / other for column, other in ps_seconds.items()}
                yield row


def _emulated(testbed: Bench, model: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """Emulated rows, of one launch per network; a row with the reason if there is none."""
    contenders: dict[tuple[int | None, str], Run] = {}
    reasons: dict[tuple[int | None, str], str] = {}
    for launch in settings.emulated_of("bml_bcube"):
        if (launch.model, launch.ranks, launch.flow_share) == (model, testbed.servers, None):
            launched, reason = runs(launch, results)
            contenders |= {(launch.batch, run.name): run for run in launched}
            reasons |= {(launch.batch, name): reason for name in launch.schemes}
    for batch, scheme in product(testbed.batches, (EVEN, TENSORS, BML)):
        row: dict[str, Any] = {"rung": "emulated", "model": model, "nodes": testbed.servers}
        row |= {"batch": batch, "scheme": scheme}
        run = contenders.get((batch, scheme))
        if run is None:
            yield row | {"assumption": "", "note": reasons.get((batch, scheme)) or NO_LAUNCH}
            continue
        row |= {"assumption": "", "computation_seconds": run.computation_seconds, **run.repeated()}
        row |= cells("exposed_communication_seconds", run.samples("exposed_communication_seconds"))
        row |= {"jct_seconds": testbed.iterations * row["iteration_seconds"]}
        row |= cells("jct_seconds", testbed.iterations * run.samples())
        row |= {"oracle_difference": run.result.conformance.get("oracle_difference")}
        row["note"] = "; ".join([*run.result.notes, f"time {run.launch.dilation:g} times slower"])
        notes = list(run.result.notes)
        if scheme == BML:
            ps_runs = {name: contenders[batch, name] for name in (EVEN, TENSORS) if (batch, name) in contenders}
            row |= _reductions(row, {name: ps_run.repeated() for name, ps_run in ps_runs.items()})
            notes += [note for ps_run in ps_runs.values() for note in ps_run.result.notes]
        yield of_a_quiet_machine(row, notes)


def _undecided(testbed: Bench, model: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """Rows of the paper's own sizes, which claims look up: one machine can't decide them, run or not."""
    batches_run = {job.batch for job in settings.of("bml_bcube") if (job.model, job.ranks) == (model, testbed.servers)}
    for batch, scheme in product(testbed.batches, (BML, EVEN, TENSORS)):
        row = {"rung": "measured", "model": model, "nodes": testbed.servers, "batch": batch, "scheme": scheme}
        note = ONE_NETWORK if batch in batches_run else f"sub-minibatch {batch} is not run here, and {ONE_NETWORK}"
        yield row | {"assumption": "", "note": note}


def _measured(model: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """The launches of this paper with the model, or with its reduced version.

    Their sub-minibatch is in a column of its own, so that no claim takes them for the paper's.
    """
    for job in settings.of("bml_bcube"):
        if job.model not in REDUCED[model]:
            continue
        trainings = {name: _result(results, job, name) for name in (BML, EVEN, TENSORS) if _trained(job, name)}
        times = {name: _repeated(job, result) for name, result in trainings.items()}
        for name, result in trainings.items():
            row = {"rung": "measured", "model": job.model, "nodes": job.ranks, "batch_here": job.batch, "scheme": name}
            row |= {"oracle_difference": result.conformance.get("oracle_difference"), "assumption": "", **times[name]}
            row["note"] = "; ".join([*result.notes, ONE_NETWORK])
            if name == BML:
                row |= _reductions(times[name], times)
            yield of_a_quiet_machine(row, result.notes)


def _trained(job: Training, name: str) -> bool:
    return job.schemes is None or (job.schemes != NATIVE and name in job.schemes)


def _repeated(job: Training, result: Result) -> dict[str, Any]:
    """Cells of an iteration of a training, and those by which its repeats are paired with those of others."""
    iterations = result.samples.get("iteration_seconds", [])
    row = {LAUNCH: job.job, REPEATS: len(iterations), "iteration_seconds": result.summary.get("iteration_seconds")}
    return row | cells("iteration_seconds", iterations)


def _reductions(bml: dict[str, Any], ps_rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By which share BML takes less than each PS in `ps_rows`, from the cells of their iterations.

    The share is taken pair by pair if they ran in turn in one launch. On networks of their own they are different
    launches: then each may be anywhere in its interval. `repeats` are those of the one that has fewest.
    """
    row: dict[str, Any] = {}
    for column, ps_name in REDUCTIONS.items():
        if ps_name not in ps_rows:
            continue
        pairs = paired(
            lambda bml_samples, ps_samples: 1 - bml_samples / ps_samples,
            bml,
            ps_rows[ps_name],
            "iteration_seconds",
        )
        (fast, slow), (least, most) = (ends(each, "iteration_seconds") for each in (bml, ps_rows[ps_name]))
        middle = 1 - bml["iteration_seconds"] / ps_rows[ps_name]["iteration_seconds"]
        row |= interval(column, middle, 1 - slow / least, 1 - fast / most) | cells(column, pairs)
        row[REPEATS] = min(row.get(REPEATS, bml[REPEATS]), ps_rows[ps_name][REPEATS])
    return row


def _result(results: Path, job: Training, name: str) -> Result:
    return Result.load(results / "runs" / "train" / job.job / name / "result.json")


def _display(frame: pd.DataFrame, testbed: Bench) -> pd.DataFrame:
    rows = []
    known = frame[frame.iteration_seconds.notna()]
    known = known.assign(batch=known.batch.fillna(known.batch_here).astype(int))
    for keys, at in known.groupby(["rung", "model", "nodes", "batch"], sort=False):
        row = dict(zip(("rung", "model", "ranks", "sub-minibatch"), keys, strict=True))
        column, scale = ("iteration_seconds", 1e3) if row["rung"] == "measured" else ("jct_seconds", 1.0)
        for scheme, title in ((EVEN, "PS"), (TENSORS, "PS, tensors"), (BML, "BML")):
            row[title] = _band(at[at.scheme == scheme], column, testbed.centre(), scale, ".3g")
        for reduced, title in (("reduction_of_ps", "reduction of ps %"), ("reduction_of_tf_ps", "of tensors %")):
            row[title] = _band(at[at.scheme == BML], reduced, testbed.centre(), 100, ".1f")
        rows.append(row)
    return pd.DataFrame(rows)


def _band(at: pd.DataFrame, column: str, centre: BandPoint, scale: float, form: str) -> str:
    if at.empty or at[column].isna().all():
        return "-"
    middle = at[at.assumption == str(centre)]
    cell = format(scale * (at if middle.empty else middle)[column].iloc[0], form)
    if len(at) > 1:
        cell += f" ({format(scale * at[column].min(), form)} .. {format(scale * at[column].max(), form)})"
    elif f"{column}_low" in at and at.rung.iloc[0] in TIMED:
        return text(at.iloc[0], column, form, scale)
    return cell


def _sizes(measured: pd.DataFrame) -> str:
    models = [MODELS[model] for model in measured.model.unique()]
    return f"{', '.join(models)} on {', '.join(map(str, measured.nodes.unique()))} ranks"


def _span(band: list[float]) -> str:
    return f"{min(band):g} to {max(band):g}"
