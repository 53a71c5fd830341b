"""The emulated launches of a configuration: real messages over limited links, computation replayed, beside predictions.

A launch runs slower than what it stands for by its dilation. Its seconds are divided by that, unless they are called
its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.intervals import shown
from gradsync.papers.table import BY_SCHEME, Table
from gradsync.results import Result
from gradsync.settings import Emulation, Settings
from gradsync.simulate import largest_speedup
from gradsync.workload import Workload

DDP, DDP_BEST = "ddp", "ddp_best"
ONE_LINK = "switch"  # topology of which every host has one
NONE_HERE = "no such emulated launch in this configuration"


class Run(NamedTuple):
    """A contender of a launch; times in seconds of what the launch stands for."""

    launch: Emulation
    name: str
    result: Result
    computation_seconds: float  # that is replayed
    largest_speedup: float  # S_max, where a host has one link; else NaN
    predicted_seconds: float  # NaN: not predicted
    lower_bound_seconds: float  # no plan is faster, at the all-reduce times measured on the testbed

    def seconds(self, key: str) -> float:
        """A time of the summary; NaN where it has none."""
        return self.result.summary.get(key, np.nan) / self.launch.dilation

    def interval(self) -> dict[str, float]:
        """The iteration and the 95 % interval of its median."""
        return {f"iteration_seconds{end}": self.seconds(f"iteration_seconds{end}") for end in ("", "_low", "_high")}


def runs(launch: Emulation, results: Path) -> tuple[list[Run], str]:
    """The contenders of a launch, or none and why; raises InputError where the launch has not ended."""
    folder, made = results / "runs" / "emulated" / launch.job, results / "emulated" / launch.job
    status = _json(folder / "status.json")
    if not status["possible"]:
        return [], str(status["reason"])
    computation = Workload.load(made / "replay.json")
    alone = (computation.forward_seconds + computation.backward_seconds) / launch.dilation
    found = []
    for name in _json(folder / "schemes.json"):
        file = results / "plans" / "emulated" / launch.job / f"{name}.prediction.json"
        told = _json(file) if file.is_file() else {}
        times = [told.get(key, np.nan) / launch.dilation for key in ("iteration_seconds", "lower_bound_seconds")]
        result = Result.load(folder / name / "result.json")
        rate = result.settings["testbed"]["bits_per_second"] / 8
        most = largest_speedup(computation, launch.ranks, rate) if launch.topology == ONE_LINK else np.nan
        found.append(Run(launch, name, result, alone, most, *times))
    return found, ""


def emulated(paper: str, settings: Settings, results: Path) -> Table:
    """A row a contender: iteration, prediction, lower bound, ratios to stock DDP, conformance."""
    rows = [row for launch in settings.emulated_of(paper) for row in _rows(launch, results)]
    if not rows:
        nothing = "no emulated launch in this configuration (config/emulated.yaml has them)"
        return Table(pd.DataFrame(columns=BY_SCHEME), pd.DataFrame({"model": [nothing]}), f"Emulated: {nothing}.")
    frame = pd.DataFrame(rows)
    known = frame[frame.iteration_seconds.notna()] if "iteration_seconds" in frame else frame.iloc[:0]
    display = pd.DataFrame([_display(row) for _, row in known.iterrows()]) if len(known) else frame[["launch", "note"]]
    return Table(frame, display, _caption(frame, known))


def _rows(launch: Emulation, results: Path) -> Iterator[dict[str, Any]]:
    found, reason = runs(launch, results)
    base = {"rung": "emulated", "model": launch.model, "nodes": launch.ranks, "assumption": "", "launch": launch.job}
    base |= {"batch": launch.batch, "topology": launch.topology, "dilation": launch.dilation}
    base |= {"stated_startup_seconds": _stated_startup(launch, results)}
    if reason:
        for name in [*launch.schemes, *launch.peers]:
            yield {**base, "scheme": name, "iteration_seconds": np.nan, "note": reason}
        return
    startups = _startups(launch, results)
    # of the backend's own all-reduce, which stock DDP has too
    own = min((run.lower_bound_seconds for run in found if _collective(run) == NATIVE), default=np.nan)
    stock = {run.name: run.seconds("iteration_seconds") for run in found if run.name in (DDP, DDP_BEST)}
    for run in found:
        seconds = run.seconds("iteration_seconds")
        testbed = run.result.settings["testbed"]
        bound = own if pd.isna(run.lower_bound_seconds) else run.lower_bound_seconds
        yield {
            **base,
            "startup_seconds": startups.get(_collective(run), np.nan),
            "scheme": run.name,
            **run.interval(),
            "own_iteration_seconds": run.result.summary["iteration_seconds"],
            "messages": run.result.summary.get("messages", np.nan),
            "computation_seconds": run.computation_seconds,
            "exposed_communication_seconds": run.seconds("exposed_communication_seconds"),
            "predicted_seconds": run.predicted_seconds,
            "predicted_over_emulated": run.predicted_seconds / seconds,
            "lower_bound_seconds": bound,
            "over_lower_bound": seconds / bound,
            "of_largest_speedup": launch.ranks * run.computation_seconds / seconds / run.largest_speedup,
            **{f"over_{name}": seconds / other for name, other in stock.items()},
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
    """Stock DDP, which has no plan, sums by the backend's own."""
    return str(run.result.settings.get("collective", NATIVE))


def _startups(launch: Emulation, results: Path) -> dict[str, float]:
    """By collective, the smallest message's time on the testbed."""
    points = pd.read_csv(results / "emulated" / launch.job / "allreduce.csv", comment="#", keep_default_na=False)
    # as ps_p2p-9; the backend's own has no name
    kinds = points.collective.map(lambda measured: measured.rpartition("-")[0] or NATIVE)
    smallest = points.loc[points.groupby(kinds).bytes.idxmin()]
    return dict(zip(kinds[smallest.index], smallest.mean_seconds / launch.dilation, strict=True))


def _display(row: Any) -> dict[str, Any]:
    def number(value: Any, form: str, scale: float = 1.0) -> str:
        return "-" if value is None or pd.isna(value) else format(scale * value, form)

    seconds = (row[f"iteration_seconds{end}"] for end in ("", "_low", "_high"))
    return {
        "model": row.model,
        "hosts": row.nodes,
        "batch": number(row.batch, ".0f"),
        "connection/link": number(row.flow_share, ".2g"),
        "contender": row.scheme,
        "messages": number(row.messages, ".0f"),
        "iteration ms": shown(seconds, ".1f", 1e3),
        "own s": number(row.own_iteration_seconds, ".2f"),
        "predicted/emulated": number(row.predicted_over_emulated, ".3f"),
        "over lower bound": number(row.over_lower_bound, ".3f"),
        "S/S_max": number(row.of_largest_speedup, ".3f"),
        "over ddp": number(row.get(f"over_{DDP}"), ".3f"),
        "over ddp_best": number(row.get(f"over_{DDP_BEST}"), ".3f"),
        "start-up us (stated)": f"{number(row.startup_seconds, '.0f', 1e6)} "
        f"({number(row.stated_startup_seconds, '.0f', 1e6)})",
        "off the oracle by": number(row.oracle_difference, ".0e"),
        "off the first by": number(row.difference_to_first, ".0e"),
    }


def _caption(frame: pd.DataFrame, known: pd.DataFrame) -> str:
    caption = (
        "Emulated: hosts are network namespaces of this machine, their links limited; messages are real, computation "
        "is replayed by waiting. Times are those of a launch over its dilation (own: as they passed here): "
    )
    slower = known.groupby("launch", sort=False).dilation.first()
    caption += ", ".join(f"{launch} {factor:g} times slower" for launch, factor in slower.items())
    caption += (
        ". Plans and predictions are made from all-reduces timed on the testbed before. Lower bound: no plan is faster "
        "at those times. S/S_max: of the largest speed-up that the link's rate allows (ASC-WFBP, Eq. 41 to 43, where "
        "a rank sends 2 (P-1)/P of the gradients). Start-up: of the smallest message (stated: of the network that it "
        "stands for). ddp: stock DDP with default buckets, ddp_best: with the best of a sweep."
    )
    told = known.predicted_over_emulated.dropna() if len(known) else pd.Series(dtype=float)
    if len(told):
        errors = (told - 1).abs()
        caption += f" Predicted against emulated: mean error {errors.mean():.1%}, worst {errors.max():.1%}."
    missing = frame[frame.iteration_seconds.isna()]
    if len(missing):
        said = [f"{launch}: {part.note.iloc[0]}" for launch, part in missing.groupby("launch", sort=False)]
        caption += f" Missing: {'; '.join(said)}."
    return caption


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}: delete it and run again") from None
