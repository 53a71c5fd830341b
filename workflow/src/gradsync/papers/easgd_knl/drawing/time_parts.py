"""Fig. 11: where the time to the accuracy goes, a panel per rung: as published, simulated, and as training ran."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.testbed import EASGD
from gradsync.papers.easgd_knl.training_runs import OBSERVED, PARTS, TRAINED
from gradsync.papers.labels import labels
from gradsync.papers.table import file, read

NAMES = {
    "gpu_gpu_para": "weights between workers",
    "cpu_gpu_data": "samples to workers",
    "cpu_gpu_para": "weights, master and workers",
    "for_backward": "forward and backward",
    "gpu_update": "update of workers",
    "cpu_update": "update of the master",
}
COLORS = ("#E69F00", "#F0E442", "#D55E00", "#0072B2", "#56B4E9", "#009E73")


def fig11(settings: Settings, results: Path) -> Drawn:
    """Stacked bars; simulated at the first point of the band, trained at that with the most methods."""
    frame = read(file(results, "easgd_knl", "table3"), ["rung", "scheme", "seconds", "comm_share"])
    shown = {str(rung): part.groupby("scheme", sort=False).head(1) for rung, part in frame.groupby("rung", sort=False)}
    for rung in TRAINED:
        if rung in shown:
            trained = frame[frame.rung == rung]
            shown[rung] = _observed(_at_one_point(trained))
    figure, grid = plt.subplots(1, len(shown), figsize=(4.3 * len(shown), 3.9), squeeze=False)
    for axes, (rung, part) in zip(grid[0], shown.items(), strict=True):
        rows = part.set_index("scheme")
        names = [name for name in EASGD if name in rows.index]
        bottom = np.zeros(len(names))
        for (key, name), color in zip(NAMES.items(), COLORS, strict=True):
            seconds = np.array([rows.seconds[each] * rows[f"{key}_share"][each] for each in names])
            axes.bar(range(len(names)), seconds, 0.7, bottom=bottom, color=color, label=name)
            bottom += seconds
        for place, each in enumerate(names):
            text = f"{rows.comm_share[each]:.0%}"
            axes.annotate(text, (place, bottom[place]), ha="center", va="bottom", fontsize=8)
        axes.set_xticks(range(len(names)), [labels(settings)(name).replace(" ", "\n") for name in names], fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.set_ylim(0, 1.12 * max(bottom, default=1.0))
        axes.set_ylabel("time [s]")
        axes.set_title(f"Fig. 11, {rung}: {_what(part)}\n(above: share of communication)", loc="left")
    handles, words = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside lower center", ncols=3)
    return figure, pd.concat(shown.values())


def _at_one_point(trained: pd.DataFrame) -> pd.DataFrame:
    """Of each method the first row at the point of the band that has the most methods."""
    point = trained.groupby("assumption", sort=False).scheme.nunique().idxmax()
    return trained[trained.assumption == point].groupby("scheme", sort=False).head(1)


def _observed(trained: pd.DataFrame) -> pd.DataFrame:
    """What was seen, whether ranks shared cores or not; the time of the run if a method doesn't get to the accuracy."""
    seen = trained.copy()
    complete = bool(seen[f"{OBSERVED}seconds"].notna().all())
    seen["seconds"] = seen[f"{OBSERVED}seconds" if complete else f"{OBSERVED}run_seconds"]
    for part in (*PARTS, "comm"):
        seen[f"{part}_share"] = seen[f"{OBSERVED}{part}_share"]
    return seen.assign(reached=complete)


def _what(part: pd.DataFrame) -> str:
    if "reached" in part and not part.reached.all():
        return "time of the run"
    return f"time to {part.accuracy.iloc[0]:.1%}"
