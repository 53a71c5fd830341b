"""Fig. 6 and 8: the test error of the methods over time, the time to given errors, and the spread over seeds.

Every row of a measured training is there twice: in the time of this machine, and simulated, in that of the paper's GPU
node (`gpu_node.py`). Simulated, the training is the measured one, whose iterations are as far apart as there; the order
in which an asynchronous method's updates arrive is that of this machine. Between emulated hosts there are links of a
told rate, and computation of a told time.

Differs from the paper: its points are single runs; here a point is the median of several seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.easgd_knl.names import FIGURES, LEVELS
from gradsync.papers.easgd_knl.training_runs import OBSERVED, TRAINED, grouped, longest, runs
from gradsync.papers.labels import labels
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, cells, jackknifed, text
from gradsync.papers.table import Table

KEYS = ("rung", "scheme", "model", "nodes", "assumption", "data", LAUNCH, REPEATS)
NOTHING = "no launch of this configuration trains these methods"


def _columns(*timed: str, keys: tuple[str, ...] = (), exact: tuple[str, ...] = ()) -> list[str]:
    ends = [f"{column}{end}" for column in timed for end in ("", LOW, HIGH, SAMPLES)]
    return [*KEYS, *keys, *exact, *ends, *(f"{OBSERVED}{column}" for column in timed), "note"]


def curves(settings: Settings, results: Path) -> Table:
    """A row per test of each seed; simulated at the first point of the band that a launch has."""
    rows: list[dict[str, Any]] = []
    for run in longest(runs(settings, results, FIGURES)):
        simulated, iteration = next(run.simulated(settings), ({}, None))
        for test in run.curve.to_dict("records"):
            iterations = test["step"] * run.per_turn
            tested = {"seed": test["seed"], "iterations": iterations, "error": test["error"]}
            rows.append({**run.keys, **tested, "seconds": test["seconds"]})
            if iteration is not None:
                rows.append({**simulated, **tested, "seconds": iterations * iteration.seconds})
    columns = [*KEYS, "seed", "iterations", "seconds", "error", "note"]
    frame = pd.DataFrame(rows, columns=columns)
    lasts = frame[frame.rung.isin(TRAINED)].groupby([LAUNCH, "scheme"], sort=False).tail(1)
    display = pd.DataFrame(
        {
            "method": lasts.scheme.map(labels(settings)),
            "rung": lasts.rung,
            "assumed": lasts.assumption,
            "seeds": lasts[REPEATS],
            "iterations": lasts.iterations,
        }
    )
    return Table(frame, _or_nothing(display), "Curves of the test error behind Fig. 6 and 8, seed by seed (CSV file).")


def fig6(settings: Settings, results: Path) -> Table:
    """A row per point of each method, its launches by length; measured, and simulated over the band."""
    columns = _columns("seconds", "error", keys=("point",), exact=("iterations",))
    rows: list[dict[str, Any]] = []
    for group in grouped(runs(settings, results, FIGURES, by_length=True)):
        for point, run in enumerate(group, 1):
            iterations, seconds, errors = zip(*run.ends(), strict=True)
            ended = {"point": point, "iterations": iterations[0]}
            rows.append({**run.keys, **ended, **cells("error", errors), **run.timed("seconds", seconds)})
            for keys, each in run.simulated(settings):
                decided = run.decided(error=float(np.median(errors)), seconds=iterations[0] * each.seconds)
                rows.append({**keys, **ended, **decided})
    frame = pd.DataFrame(rows, columns=columns)
    trained = frame[frame.rung.isin(TRAINED)]
    display = pd.DataFrame(
        {
            "method": trained.scheme.map(labels(settings)),
            "rung": trained.rung,
            "assumed": trained.assumption,
            "iterations": trained.iterations,
            "test error": [text(row, "error", ".4f") for _, row in trained.iterrows()],
            "time here [s]": trained[f"{OBSERVED}seconds"].map("{:.1f}".format),
            "time on the GPU node [s]": _range(frame, trained, f"{OBSERVED}seconds"),
        }
    )
    caption = (
        "Fig. 6 and 8: test error and time of trainings of several lengths, each a run of its own; an iteration of "
        "Original EASGD is that of one worker. Time on the GPU node: simulated, over the band."
    )
    return Table(frame, _or_nothing(display), caption)


def time_to_error(settings: Settings, results: Path) -> Table:
    """A row per method and level of the error; measured, and simulated over the band."""
    columns = _columns("seconds", "seconds_least", keys=("level",), exact=("error", "there"))
    rows: list[dict[str, Any]] = []
    for run in longest(runs(settings, results, FIGURES)):
        for level, error in enumerate(LEVELS[run.launch.data], 1):
            reached = run.reached(error)
            there = [each for each in reached if each is not None]
            least = [each or end[:2] for each, end in zip(reached, run.ends(), strict=True)]
            row = {"level": level, "error": error, "there": len(there)}
            complete = len(there) == len(reached)
            own = run.timed("seconds", (seconds for _, seconds in there) if complete else None)
            rows.append({**run.keys, **row, **own, **run.timed("seconds_least", (seconds for _, seconds in least))})
            for keys, each in run.simulated(settings):
                late = "" if complete else f"{len(reached) - len(there)} of {len(reached)} seeds do not get there"
                times = run.decided(
                    seconds=each.seconds * _median(there) if complete else None,
                    seconds_least=each.seconds * _median(least),
                )
                note = "; ".join(filter(None, (late, keys["note"])))
                rows.append({**keys, "note": note, **row, **times})
    frame = pd.DataFrame(rows, columns=columns)
    trained = frame[frame.rung.isin(TRAINED)]
    display = pd.DataFrame(
        {
            "method": trained.scheme.map(labels(settings)),
            "rung": trained.rung,
            "assumed": trained.assumption,
            "test error": trained.error,
            "seeds that get there": [f"{row.there:.0f} of {row.repeats:.0f}" for row in trained.itertuples()],
            "time here [s]": [_observed(row) for _, row in trained.iterrows()],
            "time on the GPU node [s]": _range(frame, trained, f"{OBSERVED}seconds_least"),
        }
    )
    caption = (
        "Time of training until the test error is no larger for the first time, median of the seeds; with >, some do "
        "not get there and count with their whole run. Time on the GPU node: simulated, over the band."
    )
    return Table(frame, _or_nothing(display), caption)


def stability(settings: Settings, results: Path) -> Table:
    """A row per method: the spread of the test error over seeds, mean of the points of Fig. 6."""
    rows: list[dict[str, Any]] = []
    for group in grouped(runs(settings, results, FIGURES, by_length=True)):
        errors = [[error for *_, error in run.ends()] for run in group]
        spread = float(np.mean([np.std(each) for each in errors]))
        seeds = min(map(len, errors))
        without = [{"spread": _spread_without(errors, left_out)} for left_out in range(seeds if seeds > 1 else 0)]
        last = group[-1]
        row = {**last.keys, REPEATS: seeds, "points": len(group), **jackknifed({"spread": spread}, without)}
        rows.append(row)
        simulated = {"points": len(group), **last.decided(spread=spread)}
        rows += [{**keys, **simulated} for keys, _ in last.simulated(settings)]
    columns = [*KEYS, "points", "spread", f"spread{LOW}", f"spread{HIGH}", f"{OBSERVED}spread", "note"]
    frame = pd.DataFrame(rows, columns=columns)
    trained = frame[frame.rung.isin(TRAINED)]
    display = pd.DataFrame(
        {
            "method": trained.scheme.map(labels(settings)),
            "rung": trained.rung,
            "assumed": trained.assumption,
            "points": trained.points,
            "spread of the test error": [text(row, "spread", ".4f") for _, row in trained.iterrows()],
        }
    )
    caption = "Standard deviation of the test error over seeds, mean of the points of Fig. 6; a seed left out in turn."
    return Table(frame, _or_nothing(display), caption)


def _spread_without(errors: list[list[float]], left_out: int) -> float:
    return float(np.mean([np.std([*each[:left_out], *each[left_out + 1 :]]) for each in errors]))


def _median(iterations: list[Any]) -> float:
    return float(np.median([each[0] for each in iterations]))


def _observed(row: pd.Series) -> str:
    complete = row.there == row[REPEATS]
    value = row[f"{OBSERVED}seconds" if complete else f"{OBSERVED}seconds_least"]
    return f"{value:.1f}" if complete else f"> {value:.1f}"


def _range(frame: pd.DataFrame, trained: pd.DataFrame, column: str) -> list[str]:
    """Of each row of a training, the smallest and the largest number that is simulated of it; -: nothing is."""
    keys = [LAUNCH, *(key for key in ("point", "level") if key in frame)]
    by_key = frame[frame.rung == "simulated"].groupby(keys)[column].agg(["min", "max"])
    ends = by_key.reindex(pd.MultiIndex.from_frame(trained[keys])).itertuples(index=False)
    return [
        "-" if pd.isna(most) else f"{least:.1f} .. {most:.1f}" if most > least else f"{least:.1f}"
        for least, most in ends
    ]


def _or_nothing(display: pd.DataFrame) -> pd.DataFrame:
    return display if len(display) else pd.DataFrame({"method": [NOTHING]})
