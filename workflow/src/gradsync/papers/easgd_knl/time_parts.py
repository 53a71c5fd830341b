"""Table 3 and Fig. 11: iterations and time to one accuracy, and into which parts the time goes.

The parts are those of a worker's time (`engine/breakdown.py`), mean of all workers, on every rung: a worker that waits
for its turn in a sweep of Original EASGD waits for the exchange.

Differs from the paper: its shares of Original EASGD count the one worker that is at work. There the others idle; here
they compute while the master serves others, so that an iteration of one worker is a share of a shorter sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.engine import breakdown
from gradsync.papers.easgd_knl import gpu_node
from gradsync.papers.easgd_knl.names import TARGETS
from gradsync.papers.easgd_knl.testbed import EASGD, PAPER, bench, label
from gradsync.papers.easgd_knl.training_runs import OBSERVED, PARTS, TRAINED, Run, longest, runs
from gradsync.papers.labels import labels
from gradsync.papers.published import Published
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, cells, text
from gradsync.papers.table import Table

WORKERS = 4
SHARES = (*PARTS, "comm")
TIMED = ("seconds", "iteration_seconds", *(f"{part}_share" for part in SHARES), "for_backward_seconds")
BEFORE = ("io_share", "initialisation_share")
COLUMNS = [
    *("rung", "scheme", "model", "nodes", "assumption", "data", "accuracy", LAUNCH, REPEATS),
    *(f"{column}{end}" for column in ("iterations", *TIMED, *BEFORE) for end in ("", LOW, HIGH, SAMPLES)),
    *(f"{OBSERVED}{column}" for column in ("run_seconds", *TIMED, *BEFORE)),
    *("runs_there", "note"),
]


def table3(settings: Settings, results: Path) -> Table:
    """A row per method as published, one at each point of the band, and one of each run."""
    here = longest(runs(settings, results, EASGD))
    rows = [*_published(settings), *_simulated(settings), *(_measured(run) for run in here)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    target = TARGETS["digits" if not here else here[0].launch.data]
    caption = (
        "Table 3: iterations and time to one accuracy, and the parts of a worker's time. Simulated: the published "
        "iterations, the parts of an iteration from the band, smallest and largest of it. Measured: on this machine; "
        "emulated: between hosts whose links and computation take as long as they are told; both to an accuracy of "
        f"{target:g}, median of the seeds. An iteration of Original EASGD is that of one worker. In brackets a time "
        "that was seen while ranks shared cores, which decides nothing."
    )
    return Table(frame, _display(frame, settings), caption)


def _published(settings: Settings) -> Iterator[dict[str, Any]]:
    file, published = bench(settings), Published(PAPER, settings)
    for scheme, number in EASGD.items():
        seconds, iterations = (file.positive("table3", key, scheme) for key in ("seconds", "iterations"))
        yield {
            "rung": "published",
            **{"scheme": scheme, "nodes": WORKERS, "data": "mnist", "accuracy": TARGETS["mnist"], "assumption": ""},
            **{"iterations": iterations, "seconds": seconds, "iteration_seconds": seconds / iterations},
            **{f"{part}_share": file.number("table3", part, scheme) for part in PARTS},
            "comm_share": published.value(f"table3-{number}-communication"),
        }


def _simulated(settings: Settings) -> Iterator[dict[str, Any]]:
    file = bench(settings)
    for point in gpu_node.band(settings):
        for scheme in EASGD:
            each = gpu_node.iteration(scheme, WORKERS, point, file)
            iterations = file.positive("table3", "iterations", scheme)
            yield {
                "rung": "simulated",
                **{"scheme": scheme, "nodes": WORKERS, "data": "mnist", "accuracy": TARGETS["mnist"]},
                "assumption": label(**point),
                **{"iterations": iterations, "seconds": iterations * each.seconds, "iteration_seconds": each.seconds},
                **{f"{part}_share": each.share(ours) for part, ours in PARTS.items()},
                "comm_share": sum(each.share(part) for part in breakdown.MESSAGES),
                "for_backward_seconds": each.for_backward,
            }


def _measured(run: Run) -> dict[str, Any]:
    samples = run.result.samples
    target = TARGETS[run.launch.data]
    reached = run.reached(1 - target)
    row = {**run.keys, "accuracy": target, "runs_there": sum(each is not None for each in reached)}
    there = [each for each in reached if each is not None]
    if len(there) == len(reached):
        row |= cells("iterations", [iterations for iterations, _ in there])
        row |= run.timed("seconds", (seconds for _, seconds in there))
        for key, column in zip(("reading", "initialisation"), BEFORE, strict=True):
            before = zip(samples[f"{key}_seconds"], _whole(samples, there), strict=True)
            row |= run.timed(column, (part / whole for part, whole in before))
    else:
        few = f"{len(there)} of {len(reached)} seeds get to an accuracy of {target:g}"
        row["note"] = "; ".join(filter(None, (few, row["note"])))
    row |= {f"{OBSERVED}run_seconds": float(pd.Series([seconds for _, seconds, _ in run.ends()]).median())}
    row |= run.timed("iteration_seconds", (each / run.per_turn for each in samples["iteration_seconds"]))
    for part, ours in (*PARTS.items(), ("comm", "comm")):
        row |= run.timed(f"{part}_share", samples[f"{ours}_share"])
    return row | run.timed("for_backward_seconds", samples["for_backward_seconds"])


def _whole(samples: dict[str, list[float]], there: list[tuple[float, float]]) -> list[float]:
    """By seed, seconds until the accuracy with what came before."""
    before = zip(samples["reading_seconds"], samples["initialisation_seconds"], strict=True)
    return [sum(each) + seconds for each, (_, seconds) in zip(before, there, strict=True)]


def _display(frame: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """A row per method and rung; of a band the smallest and the largest number."""
    label_of = labels(settings)
    rows = []
    for scheme in EASGD:
        for rung, part in frame[frame.scheme == scheme].groupby("rung", sort=False):
            for _, group in part.groupby(LAUNCH if rung in TRAINED else "rung", sort=False):
                rows.append({"method": label_of(scheme), "rung": rung, **_cells(group)})
    return pd.DataFrame(rows)


def _cells(group: pd.DataFrame) -> dict[str, str]:
    row = {
        "iterations": _shown(group, "iterations", ".0f"),
        "time [s]": _shown(group, "seconds", ".1f"),
        "iteration [ms]": _shown(group, "iteration_seconds", ".2f", 1e3),
    }
    for part in SHARES:
        row[{"comm": "communication"}.get(part, part.replace("_", " "))] = _shown(group, f"{part}_share", ".1%")
    return row


def _shown(group: pd.DataFrame, column: str, form: str, scale: float = 1.0) -> str:
    first = group.iloc[0]
    if len(group) > 1:
        ends = [format(scale * end, form) for end in (group[column].min(), group[column].max())]
        return ends[0] if ends[0] == ends[1] else " .. ".join(ends)
    if first.rung in TRAINED:
        seen = first.get(f"{OBSERVED}{column}")
        return (
            text(first, column, form, scale) if pd.isna(seen) or pd.notna(first[column]) else f"[{seen * scale:{form}}]"
        )
    return "-" if pd.isna(first[column]) else format(scale * first[column], form)
