"""Two runs: their settings, plans and parameters, and the ratio of each number that both of them repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradsync.files.results import Result
from gradsync.statistics import spans

FINAL = ("accuracy", "final_loss")  # what training ends with
PLANNED = ("plan", "all_reduce", "bucket_mib", "bucket_bytes")  # settings that may follow what was measured


def compare_runs(first: Path, second: Path) -> dict[str, Any]:
    """What `result.json` of two folders says of either run; raises InputError if there is none or it can't be read.

    Ratios are second to first, with their 95 % interval: pair by pair for two runs of one launch, which stand side by
    side in its folder; null if there are too few repeats for one.
    """
    runs = Result.load(first / "result.json"), Result.load(second / "result.json")
    return {
        "first": _name(runs[0]),
        "second": _name(runs[1]),
        "settings": different(runs),
        "planned": same_or_not(*(planned(run) for run in runs)),
        "parameters": same_or_not(*(parameters(run) for run in runs)),
        "final": {key: [run.summary.get(key) for run in runs] for key in FINAL if any(key in r.summary for r in runs)},
        "timed": [
            _ratio(key, runs, [str(folder.resolve().parent) for folder in (first, second)])
            for key in runs[0].samples
            if key in runs[1].samples
        ],
    }


def different(runs: tuple[Result, Result]) -> dict[str, str]:
    """`first -> second` of the settings that differ, but for `PLANNED`; one that a run lacks is `-` there."""
    first, second = (run.settings for run in runs)
    pairs = {key: (first.get(key, "-"), second.get(key, "-")) for key in {**first, **second} if key not in PLANNED}
    return {key: f"{one} -> {other}" for key, (one, other) in pairs.items() if one != other}


def planned(run: Result) -> object:
    """The hash of its plan; the buckets of a peer; None if it has neither."""
    return run.settings.get("plan") or run.settings.get("bucket_bytes")


def parameters(run: Result) -> object:
    """The hash of the parameters that it ended with; None if it has none."""
    return run.conformance.get("parameters_sha256")


def same_or_not(one: object, other: object) -> str:
    """`same`, `different`, or `unknown` if one of them is None."""
    if one is None or other is None:
        return "unknown"
    return "same" if one == other else "different"


def _name(run: Result) -> str:
    return f"{run.scheme}, {run.model}, {run.ranks} ranks, {run.rung}"


def _ratio(key: str, runs: tuple[Result, Result], launches: list[str]) -> dict[str, Any]:
    one, other = (spans.Span.repeated(run.samples[key], launch) for run, launch in zip(runs, launches, strict=True))
    told: dict[str, Any] = {"number": key, "first": one.value, "second": other.value}
    try:
        ratio = spans.of(spans.divided, (other, one))
    except (spans.MayBeZero, ZeroDivisionError):
        return {**told, "ratio": None, "low": None, "high": None}
    low, high = (ratio.low, ratio.high) if ratio.known else (None, None)
    return {**told, "ratio": ratio.value, "low": low, "high": high}
