"""Fig. 9: what a training waits for its photographs, without the data cache and from each level of it.

Differs from the paper: loaders take turns in one process on this machine, in column `device`; the photographs are those
of the configuration, and the note of a row states where they lie. The paper doesn't say whether its cache has images as
they were decoded or reduced ones: `datacache` has them as they are, `datacache_reduced` as small as test images. Rows
of photographs that were made up, which lie in the page cache, have no intervals, so that they decide nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.files.results import Result
from gradsync.papers.repeats import LAUNCH, REPEATS, columns, shown_only, text
from gradsync.papers.table import Table
from gradsync.papers.training import repeated
from gradsync.statistics.quiet import UNDER_LOAD

QUANTITIES = ("io_seconds", "exposed_io_seconds", "iteration_seconds", "throughput")
FIG9 = ["rung", "loader", "model", "device", *columns(*QUANTITIES), REPEATS, LAUNCH, "note"]
LOADERS = {
    "naive": "without (Naive)",
    "local_files": "copies of files",
    "datacache": "DataCache",
    "datacache_reduced": "DataCache, reduced images",
}


def fig9(settings: Settings, results: Path) -> Table:
    """A row per loader."""
    folder = results / "runs" / "loading" / settings.loading.job
    runs = [Result.load(folder / loader / "result.json") for loader in LOADERS]
    frame = pd.DataFrame([_row(run, settings.loading.job) for run in runs]).reindex(columns=FIG9)
    display = pd.DataFrame(
        [
            {
                "loader": LOADERS[row.loader],
                "reading [ms]": text(row, "io_seconds", ".3g", 1e3),
                "waited for [ms]": text(row, "exposed_io_seconds", ".3g", 1e3),
                "iteration [ms]": text(row, "iteration_seconds", ".3g", 1e3),
                "samples per second": text(row, "throughput", ".3g"),
            }
            for _, row in frame.iterrows()
        ]
    )
    first = runs[0]
    caption = (
        f"Fig. 9 on this machine's {first.settings['device']}: an iteration of {first.settings['model']} at "
        f"{first.settings['size']} pixels, {first.settings['batch']} samples, from the second epoch on; in brackets "
        "95 %. Reading: to read, decode and augment the samples, while the iteration before is computed; waited for: "
        f"what is not hidden behind that. {'. '.join(first.notes)}. The paper has a V100 and 256 samples, so that "
        "times on a processor decide nothing."
    )
    return Table(frame, display, caption)


def _row(run: Result, job: str) -> dict[str, Any]:
    row = {"rung": run.rung, "loader": run.scheme, "model": run.model, "device": run.settings["device"]}
    row |= {**repeated(run), LAUNCH: f"loading of {job}", "note": "; ".join(run.notes)}
    made_up = run.settings.get("data_folder") is None
    return shown_only(row) if made_up or any(UNDER_LOAD in note for note in run.notes) else row
