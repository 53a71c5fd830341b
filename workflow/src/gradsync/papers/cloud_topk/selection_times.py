"""Fig. 6: what the top-k operators take, by the length of the vector, k = 0.001 d.

Differs from the paper: the device is that of this machine, in column `device`; compressors take turns in each round,
and a time has an interval, over rounds. Its nn.topk is `exact_topk`, its DGC `dgc_topk`, its Algorithm 1 to the letter
`mstopk_as_printed`; `mstopk` has the same guarantee from a sample and one pass (`runtime/selection/`). Other
compressors have rows, too. Rows that were timed beside other work have no intervals, so that they decide nothing; nor
have those of `mstopk` on a GPU whose kernels could not be compiled, where torch.topk selects in its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.costs.selection_times import SelectionPoint, SelectionTimes
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, columns, shown_only, text
from gradsync.papers.table import Table
from gradsync.statistics.quiet import load_warnings

FIG6 = [
    *("rung", "scheme", "elements", "device", "k", "selected", "recall"),
    *(*columns("seconds"), REPEATS, LAUNCH, "note"),
]
TORCH = "torch.topk"  # as provenance has it
REPLACED = f"{TORCH} selected in place of mstopk, whose kernels could not be compiled (Triton needs a C compiler)"
OPERATORS = {
    "exact_topk": "nn.topk (exact)",
    "dgc_topk": "DGC",
    "mstopk": "MSTopK",
    "mstopk_as_printed": "MSTopK to the letter",
    "random_k": "random k",
}


def fig6(settings: Settings, results: Path) -> Table:
    """A row per compressor and length."""
    times = SelectionTimes.load(results / "profile" / "selection" / "times.json")
    loaded, replaced = load_warnings(times.provenance, "selections"), times.provenance.get("mstopk") == TORCH
    notes = {point.compressor: "; ".join(loaded) for point in times.points}
    if replaced:
        notes["mstopk"] = "; ".join([*loaded, REPLACED])
    frame = pd.DataFrame([_row(point, times.device, notes[point.compressor]) for point in times.points])
    frame = frame.reindex(columns=FIG6)
    display = pd.DataFrame([_shown(part) for _, part in frame.groupby("elements", sort=True)]).fillna("-")
    caption = (
        f"Fig. 6 on this machine's {times.device}: milliseconds to select k = {times.density:g} d of d elements of "
        f"32 bits. {str(times.provenance.get('measured', '')).capitalize()}, in brackets 95 %. The paper has one V100, "
        "so that times on a processor decide nothing. MSTopK has the paper's guarantee from a sample and one pass; "
        "to the letter it counts thirty times."
    )
    said = (*times.notes, *loaded, *([REPLACED] if replaced else []))
    return Table(frame, display, " ".join([caption, *(f"{note}." for note in said)]))


def _row(point: SelectionPoint, device: str, note: str) -> dict[str, Any]:
    row: dict[str, Any] = {"rung": "measured", "scheme": point.compressor, "device": device, "note": note}
    row |= point.model_dump(include={"elements", "k", "selected", "recall"})
    row |= {REPEATS: len(point.seconds), LAUNCH: f"selection of {point.elements}", **cells("seconds", point.seconds)}
    return shown_only(row) if note else row


def _shown(part: pd.DataFrame) -> dict[str, Any]:
    rows = {row.scheme: row for _, row in part.iterrows()}
    ordered = [name for name in (*OPERATORS, *rows) if name in rows]
    times = {OPERATORS.get(name, name): text(rows[name], "seconds", ".3g", 1e3) for name in dict.fromkeys(ordered)}
    return {"elements": f"{part.elements.iloc[0]:,}", **times}
