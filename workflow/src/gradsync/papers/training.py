"""The real runs of a configuration: plans and stock DDP, each with its prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.launches import Training
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers.labels import REFERENCES, Labels, labels
from gradsync.papers.ranking import over_fastest, ranked
from gradsync.papers.repeats import REPEATS, cells, text
from gradsync.papers.simulated import BOUNDS
from gradsync.papers.table import BY_SCHEME, Table
from gradsync.statistics.intervals import repeats_needed
from gradsync.statistics.quiet import QUIET, UNDER_LOAD

FROM_RESULT = (
    *("messages", "iteration_seconds"),
    *("exposed_communication_seconds", "waiting_seconds", "busy_computation_seconds", "computation_seconds", "speedup"),
    *("seeds", "accuracy", "accuracy_least", "accuracy_most"),
)
PREDICTED = (
    *("iteration_seconds", "iteration_seconds_without_interference", "exposed_communication_seconds"),
    *("messages", "warnings"),
)


DETAILS = (
    "Of the same runs, where the time goes and whether they compute the same. Exposed: seconds in which messages are "
    "under way and nothing is computed; waiting: in which rank 0 is in a message that another rank has not come to. "
    "DDP does not tell when its messages travel. Computation slowed: seconds in which a rank computes, against the "
    "same without any communication; messages use the same cores. Conformance: parameters after some float64 steps "
    "against the oracle's (- if the configuration takes none), and at the end of the run against the first contender's."
)


def training(paper: str, settings: Settings, results: Path) -> Table:
    """The real runs of a paper: iteration time, ratio to WFBP, prediction, interference, accuracy, conformance."""
    rows = [row for job in settings.of(paper) for row in _rows(job, results)]
    if not rows:
        nothing = f"no training for {paper} in this configuration"
        return Table(pd.DataFrame(columns=BY_SCHEME), pd.DataFrame({"model": [nothing]}), f"Real training: {nothing}.")
    frame = pd.DataFrame(rows)
    measured = frame[frame.rung == "measured"]
    label_of = labels(settings)
    launches = [ranked(launch) for _, launch in measured.groupby("launch", sort=False)]
    contenders = [(row, launch) for launch in launches for _, row in launch.iterrows()]
    times = pd.DataFrame([_who(row, label_of) | _times(row, launch) for row, launch in contenders]).fillna("-")
    details = pd.DataFrame([_who(row, label_of) | _details(row) for row, _ in contenders]).fillna("-")
    return Table(frame, times, _caption(measured), ((DETAILS, details),))


def _rows(job: Training, results: Path) -> list[dict[str, Any]]:
    """A measured row per contender, and a simulated one if it has a prediction."""
    folder = results / "runs" / "train" / job.job
    rows = []
    for name in _json(folder / "schemes.json"):
        result = Result.load(folder / name / "result.json")
        base = {"model": result.model, "nodes": result.ranks, "scheme": name, "assumption": "", "launch": job.job}
        row = {"rung": "measured", **base, **{key: result.summary.get(key, np.nan) for key in FROM_RESULT}}
        row |= repeated(result)
        row |= {"batch": result.settings.get("batch", np.nan), **_ratio(result)}
        # computation while messages travel over computation alone, on the same cores
        row["slowdown"] = row["busy_computation_seconds"] / row["computation_seconds"]
        row |= {key: result.conformance.get(key) for key in ("oracle_difference", "difference_to_first")}
        row |= {"parameters_sha256": result.conformance.get("parameters_sha256"), "note": "; ".join(result.notes)}
        row["disturbed"] = any(UNDER_LOAD in note for note in result.notes)
        path = results / "plans" / job.job / f"{name}.prediction.json"
        if path.is_file():
            prediction = _prediction(path)
            without = prediction["iteration_seconds_without_interference"]
            row["disturbed"] |= any(UNDER_LOAD in note for note in prediction["warnings"])
            # of phases or stages a prediction is a mean, and what is measured a median over blocks of all of them
            if not (row["disturbed"] or job.recipe or "phases" in prediction):
                row["predicted_over_measured"] = prediction["iteration_seconds"] / row["iteration_seconds"]
                row["predicted_over_measured_without_interference"] = without / row["iteration_seconds"]
            simulated = {
                "rung": "simulated",
                **base,
                "messages": len(prediction["messages"]),
                "iteration_seconds": prediction["iteration_seconds"],
                "exposed_communication_seconds": prediction["exposed_communication_seconds"],
                **{key: prediction.get(key, np.nan) for key in BOUNDS},
                "note": "; ".join(prediction["warnings"]),
            }
            rows.append(simulated)
        rows.append(row)
    return rows


def repeated(result: Result) -> dict[str, Any]:
    """Cells of every repeated quantity of a run, and how many repeats there were."""
    row: dict[str, Any] = {REPEATS: len(result.samples.get("iteration_seconds", []))}
    for key, samples in result.samples.items():
        row |= cells(key, samples)
    return row


def _ratio(result: Result) -> dict[str, Any]:
    """Iteration time over that of the launch's reference, with its interval."""
    for key, value in result.summary.items():
        if key.startswith("ratio_to_") and not key.endswith(("_low", "_high")):
            ends = {f"ratio{end}": result.summary.get(f"{key}{end}", np.nan) for end in ("_low", "_high")}
            return {"reference": key.removeprefix("ratio_to_"), "ratio": value, **ends}
    return {"reference": "", "ratio": np.nan, "ratio_low": np.nan, "ratio_high": np.nan}


def _who(row: Any, label_of: Labels) -> dict[str, Any]:
    return {"model": row.model, "ranks": row.nodes, "contender": label_of(row.scheme)}


def _times(row: Any, launch: pd.DataFrame) -> dict[str, Any]:
    ratio, word = over_fastest(row, launch)
    return {
        "batch": _number(row.batch, ".0f"),
        "messages": _number(row.messages, ".0f"),
        "iteration ms": text(row, "iteration_seconds", ".1f", 1e3),
        "over the fastest": ratio,
        "which is": word,
        **({f"over {row.reference}": text(row, "ratio", ".3f")} if row.reference else {}),
        "speed-up": text(row, "speedup", ".2f"),
    }


def _details(row: Any) -> dict[str, Any]:
    return {
        "exposed ms": _number(1e3 * row.exposed_communication_seconds, ".1f"),
        "waiting ms": _number(1e3 * row.waiting_seconds, ".1f"),
        "computation slowed": _number(row.slowdown, ".2f"),
        "predicted/measured": _number(row.get("predicted_over_measured"), ".2f"),
        "accuracy": _number(row.accuracy, ".3f"),
        "off the oracle by": _number(row.oracle_difference, ".0e"),
        "off the first by": _number(row.difference_to_first, ".0e"),
    }


def _number(value: Any, form: str) -> str:
    return "-" if value is None or pd.isna(value) else format(value, form)


def _caption(measured: pd.DataFrame) -> str:
    caption = (
        "Real training on this machine: all contenders of a model and number of ranks in turn in one launch. Ratios "
        "are medians over pairs of neighbouring blocks, in brackets the 95 % interval of the median, which fewer than "
        f"{repeats_needed()} blocks have not. The fastest contender of a launch stands first; another is slower if the "
        "interval of its ratio to that one is above 1. Speed-up: over one rank alone with as many threads."
    )
    if measured.disturbed.any():
        launches = [titled(part) for _, part in measured[measured.disturbed].groupby("launch", sort=False)]
        caption += (
            f" Of {', '.join(launches)}, times here or those that predictions come from were {UNDER_LOAD} more than "
            f"{QUIET:.0%} of the cores: the two are not held against each other."
        )
    if "predicted_over_measured" not in measured or measured.predicted_over_measured.isna().all():
        return caption
    caption += (
        " Predictions come from other runs: layer times of ranks that compute at the same time, all-reduce times, and "
        "how the two slow one another down. Mean error:"
    )
    parts = []
    for _, part in measured.groupby("launch", sort=False):
        predicted = part.dropna(subset="predicted_over_measured")
        if len(predicted):
            error = (predicted.predicted_over_measured - 1).abs().mean()
            plain = (predicted.predicted_over_measured_without_interference - 1).abs().mean()
            parts.append(f"{titled(part)} {error:.0%} ({plain:.0%} without the slow-down)")
    return f"{caption} {', '.join(parts)}."


def contenders(folder: Path) -> list[str]:
    """The schemes of a launch, without its references; raises InputError if the launch has not ended."""
    try:
        names = json.loads((folder / "schemes.json").read_text())
        return [str(name) for name in names if name not in REFERENCES]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder / 'schemes.json'}: can't be read: {error}: delete it and run again") from None


def titled(launch: pd.DataFrame) -> str:
    """The title of a launch, from its rows: model, ranks, and its own name if it has one."""
    row = launch.iloc[0]
    suffix = row.launch.removeprefix(f"{row.model}-{row.nodes}").lstrip("-")
    return f"{row.model} on {row.nodes} ranks" + (f" ({suffix})" if suffix else "")


def _prediction(path: Path) -> dict[str, Any]:
    content = _json(path)
    missing = [key for key in PREDICTED if not isinstance(content, dict) or key not in content]
    if missing:
        raise InputError(f"{path}: not a prediction: no {', '.join(missing)}: delete it and run again")
    return dict(content)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}: delete it and run again") from None
