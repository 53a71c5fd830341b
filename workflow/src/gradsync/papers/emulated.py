"""The emulated launches of a configuration: real messages over limited links, computation replayed, and predictions.

A launch is slower than what it stands for by its dilation. Its seconds are divided by the dilation, unless they are
called its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gradsync.collectives import NATIVE
from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.engine.bounds import largest_speedup
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers.emulated_bounds import hard_bound
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, text
from gradsync.papers.table import BY_SCHEME, Table
from gradsync.plan.workload import Workload
from gradsync.statistics.intervals import repeats_needed

DDP, DDP_BEST = "ddp", "ddp_best"
ONE_LINK = "switch"  # topology of which every host has one
NO_LAUNCH = "no such emulated launch in this configuration"


class Run(NamedTuple):
    """A contender of a launch; all times are seconds of what the launch stands for."""

    launch: Emulation
    name: str
    result: Result
    computation_seconds: float  # computation that is replayed
    largest_speedup: float  # S_max if a host has one link; else NaN
    predicted_seconds: float  # NaN: not predicted
    hard_bound_seconds: float  # nothing that sends the same bytes is faster on these links; NaN: not known
    model_bound_seconds: float  # no plan is faster, by the all-reduces measured on the testbed

    def seconds(self, key: str) -> float:
        """A time of the summary; NaN if the summary does not have it."""
        return self.result.summary.get(key, np.nan) / self.launch.dilation

    def samples(self, key: str = "iteration_seconds") -> np.ndarray:
        """The repeats of a time, one per block; none if the run has no such time."""
        return np.array(self.result.samples.get(key, [])) / self.launch.dilation

    def exposed(self) -> np.ndarray:
        """The repeats of exposed communication; of stock DDP, which does not report it, iteration less computation."""
        samples = self.samples("exposed_communication_seconds")
        return samples if len(samples) else self.samples() - self.computation_seconds

    def repeated(self) -> dict[str, Any]:
        """Cells of the iteration, and the cells by which its repeats are paired with those of other runs."""
        iterations = self.samples()
        row = {
            LAUNCH: self.launch.job,
            REPEATS: len(iterations),
            "iteration_seconds": self.seconds("iteration_seconds"),
        }
        return row | cells("iteration_seconds", iterations)


def runs(launch: Emulation, results: Path) -> tuple[list[Run], str]:
    """The contenders of a launch, or none and the reason; raises InputError if the launch has not ended."""
    folder, replay_folder = results / "runs" / "emulated" / launch.job, results / "emulated" / launch.job
    status = _json(folder / "status.json")
    if not status["possible"]:
        return [], str(status["reason"])
    computation = Workload.load(replay_folder / "replay.json")
    computation_seconds = (computation.forward_seconds + computation.backward_seconds) / launch.dilation
    contenders = []
    for name in _json(folder / "schemes.json"):
        file = results / "plans" / "emulated" / launch.job / f"{name}.prediction.json"
        prediction = _json(file) if file.is_file() else {}
        predicted_seconds, model_bound = (
            prediction.get(key, np.nan) / launch.dilation for key in ("iteration_seconds", "model_bound_seconds")
        )
        result = Result.load(folder / name / "result.json")
        hard_bound_seconds = hard_bound(results, launch.job, result) / launch.dilation
        rate = result.settings["testbed"]["bits_per_second"] / 8
        largest = largest_speedup(computation, launch.ranks, rate) if launch.topology == ONE_LINK else np.nan
        contenders.append(
            Run(launch, name, result, computation_seconds, largest, predicted_seconds, hard_bound_seconds, model_bound)
        )
    return contenders, ""


def emulated(paper: str, settings: Settings, results: Path) -> Table:
    """A row per contender: iteration, prediction, bounds, ratios to stock DDP, conformance."""
    rows = [row for launch in settings.emulated_of(paper) for row in _rows(launch, results)]
    if not rows:
        nothing = "no emulated launch of this paper in this configuration (docs/emulation.md tells which have some)"
        return Table(pd.DataFrame(columns=BY_SCHEME), pd.DataFrame({"model": [nothing]}), f"Emulated: {nothing}.")
    frame = pd.DataFrame(rows)
    known = frame[frame.iteration_seconds.notna()] if "iteration_seconds" in frame else frame.iloc[:0]
    display = pd.DataFrame([_display(row) for _, row in known.iterrows()]) if len(known) else frame[["launch", "note"]]
    return Table(frame, display, _caption(frame, known))


def _rows(launch: Emulation, results: Path) -> Iterator[dict[str, Any]]:
    contenders, reason = runs(launch, results)
    base = {"rung": "emulated", "model": launch.model, "nodes": launch.ranks, "assumption": "", "launch": launch.job}
    base |= {"batch": launch.batch, "topology": launch.topology, "dilation": launch.dilation}
    base |= {"stated_startup_seconds": _stated_startup(launch, results)}
    if reason:
        for name in [*launch.schemes, *launch.peers]:
            yield {**base, "scheme": name, "iteration_seconds": np.nan, "note": reason}
        return
    startups = _startups(launch, results)
    # the bound by the backend's own all-reduce, which stock DDP uses too
    native_bound = min((run.model_bound_seconds for run in contenders if _collective(run) == NATIVE), default=np.nan)
    stock = {run.name: run.samples() for run in contenders if run.name in (DDP, DDP_BEST)}
    for run in contenders:
        seconds = run.seconds("iteration_seconds")
        testbed = run.result.settings["testbed"]
        model_bound = native_bound if pd.isna(run.model_bound_seconds) else run.model_bound_seconds
        serial_seconds = launch.ranks * run.computation_seconds
        yield {
            **base,
            "startup_seconds": startups.get(_collective(run), np.nan),
            "scheme": run.name,
            **run.repeated(),
            "own_iteration_seconds": run.result.summary["iteration_seconds"],
            "messages": run.result.summary.get("messages", np.nan),
            "computation_seconds": run.computation_seconds,
            **cells("exposed_communication_seconds", run.samples("exposed_communication_seconds")),
            **cells("waiting_seconds", run.samples("waiting_seconds")),
            "absorbed_host_seconds": run.seconds("absorbed_host_seconds"),
            "predicted_seconds": run.predicted_seconds,
            "predicted_over_emulated": run.predicted_seconds / seconds,
            "hard_bound_seconds": run.hard_bound_seconds,
            **cells("over_hard_bound", run.samples() / run.hard_bound_seconds),
            "model_bound_seconds": model_bound,
            **cells("over_model_bound", run.samples() / model_bound),
            **cells("of_largest_speedup", serial_seconds / run.samples() / run.largest_speedup),
            **dict(chain.from_iterable(cells(f"over_{n}", run.samples() / each).items() for n, each in stock.items())),
            "bits_per_second": testbed["bits_per_second"],
            "flow_bits_per_second": testbed.get("flow_bits_per_second", np.nan),
            "flow_share": testbed.get("flow_bits_per_second", testbed["bits_per_second"]) / testbed["bits_per_second"],
            "oracle_difference": run.result.conformance.get("oracle_difference", np.nan),
            "difference_to_first": run.result.conformance.get("difference_to_first", np.nan),
            "note": "; ".join(run.result.notes),
        }


def _stated_startup(launch: Emulation, results: Path) -> float:
    file = results / "emulated" / launch.job / "replay.json"
    stated = Workload.load(file).provenance.get("startup_seconds") if file.is_file() else None
    return float(stated) if isinstance(stated, int | float) else np.nan


def _collective(run: Run) -> str:
    """The collective of a run; stock DDP, which has no plan, sums by the backend's own."""
    return str(run.result.settings.get("collective", NATIVE))


def _startups(launch: Emulation, results: Path) -> dict[str, float]:
    """By collective, the time of the smallest message on the testbed."""
    points = pd.read_csv(results / "emulated" / launch.job / "allreduce.csv", comment="#", keep_default_na=False)
    # a name is like ps_p2p-9; the backend's own collective has none
    kinds = points.collective.map(lambda measured: measured.rpartition("-")[0] or NATIVE)
    smallest = points.loc[points.groupby(kinds).bytes.idxmin()]
    return dict(zip(kinds[smallest.index], smallest.mean_seconds / launch.dilation, strict=True))


def _display(row: Any) -> dict[str, Any]:
    def number(value: Any, form: str, scale: float = 1.0) -> str:
        return "-" if value is None or pd.isna(value) else format(scale * value, form)

    return {
        "model": row.model,
        "hosts": row.nodes,
        "batch": number(row.batch, ".0f"),
        "connection/link": number(row.flow_share, ".2g"),
        "contender": row.scheme,
        "messages": number(row.messages, ".0f"),
        "iteration ms": text(row, "iteration_seconds", ".1f", 1e3),
        "own s": number(row.own_iteration_seconds, ".2f"),
        "exposed ms": number(row.get("exposed_communication_seconds"), ".1f", 1e3),
        "waiting ms": number(row.get("waiting_seconds"), ".1f", 1e3),
        "host ms hidden": number(row.absorbed_host_seconds, ".1f", 1e3),
        "predicted/emulated": number(row.predicted_over_emulated, ".3f"),
        "over hard bound": number(row.get("over_hard_bound"), ".3f"),
        "over model bound": number(row.get("over_model_bound"), ".3f"),
        "S/S_max": number(row.get("of_largest_speedup"), ".3f"),
        "over ddp": text(row, f"over_{DDP}", ".3f"),
        "over ddp_best": text(row, f"over_{DDP_BEST}", ".3f"),
        "start-up us (stated)": f"{number(row.startup_seconds, '.0f', 1e6)} "
        f"({number(row.stated_startup_seconds, '.0f', 1e6)})",
        "off the oracle by": number(row.oracle_difference, ".0e"),
        "off the first by": number(row.difference_to_first, ".0e"),
    }


def _caption(frame: pd.DataFrame, known: pd.DataFrame) -> str:
    caption = (
        "Emulated: hosts are network namespaces of this machine, their links limited; messages are real, computation "
        "is replayed by waiting. Medians of blocks, ratios pair by pair, in brackets 95 %, which fewer than "
        f"{repeats_needed()} blocks have not. Times are over the launch's dilation (own: as they passed here): "
    )
    slower = known.groupby("launch", sort=False).dilation.first()
    caption += ", ".join(f"{launch} {factor:g} times slower" for launch, factor in slower.items())
    caption += (
        ". Plans and predictions are made from all-reduces timed on the testbed before. Hard bound: nothing that sends "
        "these bytes is faster, by the computation that is replayed and the nominal rate of the links less the headers "
        "of the largest packets. Model bound: no plan is faster, by the lower ends of the intervals of those "
        "all-reduces and the measured update; of stock DDP, that of plans with all-reduces like its own. S/S_max: of "
        "the largest speed-up that the link's rate allows (ASC-WFBP, Eq. 41 to 43, where a rank sends 2 (P-1)/P of the "
        "gradients). Start-up: of the smallest message (stated: of the network that it stands for). ddp: stock DDP "
        "with default buckets, ddp_best: with the best of a sweep."
    )
    predicted = known.predicted_over_emulated.dropna() if len(known) else pd.Series(dtype=float)
    if len(predicted):
        errors = (predicted - 1).abs()
        caption += f" Predicted against emulated: mean error {errors.mean():.1%}, worst {errors.max():.1%}."
    missing = frame[frame.iteration_seconds.isna()]
    if len(missing):
        reasons = [f"{launch}: {part.note.iloc[0]}" for launch, part in missing.groupby("launch", sort=False)]
        caption += f" Missing: {'; '.join(reasons)}."
    return caption


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}: delete it and run again") from None
