"""Fig. 6: what each operator takes by the length of the vector, short ones on the left and long ones on the right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.selection_times import FIG6, OPERATORS
from gradsync.papers.table import file, read

SMALL = 8e6  # elements of the longest short vector


def fig6(settings: Settings, results: Path) -> Drawn:
    """Times over elements, both on scales of powers."""
    frame = read(file(results, "cloud_topk", "fig6"), FIG6)
    parts = {"(a) small": frame[frame.elements <= SMALL], "(b) large": frame[frame.elements > SMALL]}
    shown = {title: part for title, part in parts.items() if not part.empty}
    figure, grid = plt.subplots(1, len(shown), figsize=(4.8 * len(shown), 4.0), squeeze=False)
    for axes, (title, part) in zip(grid[0], shown.items(), strict=True):
        _times(axes, part)
        axes.set_title(f"Fig. 6{title}, this machine's {part.device.iloc[0]}", loc="left")
    grid[0, 0].set_ylabel("time of a selection [ms]")
    panels.legend(figure, ncols=3)
    words = [f"Left out: {title}: no such length in this configuration." for title in parts if title not in shown]
    words += [f"{note}." for note in frame.note.unique() if note]
    if words:
        panels.caption(figure, " ".join(words))
    return figure, frame


def _times(axes: Axes, part: pd.DataFrame) -> None:
    for number, (name, label) in enumerate(OPERATORS.items()):
        line = part[part.scheme == name].sort_values("elements")
        errors = np.array([line.seconds - line.seconds_low, line.seconds_high - line.seconds], float)
        known = bool(np.isfinite(errors).all())
        axes.errorbar(
            line.elements / 1e6,
            1e3 * line.seconds,
            yerr=1e3 * errors if known else None,
            fmt="-o",
            markersize=4,
            capsize=2,
            color=f"C{number}",
            label=label,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = np.unique(part.elements) / 1e6
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    axes.set_xlabel("elements [million]")
