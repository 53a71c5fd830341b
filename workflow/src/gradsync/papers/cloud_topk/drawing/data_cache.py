"""Fig. 9: an iteration with and without the data cache: what it waits for samples, and the rest; what reading takes."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.data_cache import FIG9, LOADERS
from gradsync.papers.table import file, read

COMPUTATION, WAITING, READING = "#0072B2", "#D55E00", "#999999"


def fig9(settings: Settings, results: Path) -> Drawn:
    """Stacked bars of the iteration on the left, bars of reading on the right, with intervals."""
    frame = read(file(results, "cloud_topk", "fig9"), FIG9)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
    places = np.arange(len(frame))
    waited = 1e3 * frame.exposed_io_seconds
    left.bar(places, waited, 0.6, color=WAITING, label="waiting for samples")
    rest = 1e3 * frame.iteration_seconds - waited
    left.bar(places, rest, 0.6, bottom=waited, color=COMPUTATION, label="forward, backward, update")
    _interval(left, places, frame, "iteration_seconds")
    left.set_ylabel("an iteration [ms]")
    left.set_title(f"Fig. 9, {frame.model.iloc[0]} on this machine's {frame.device.iloc[0]}", loc="left")
    right.bar(places, 1e3 * frame.io_seconds, 0.6, color=READING)
    _interval(right, places, frame, "io_seconds")
    naive = float(frame.io_seconds[frame.loader == "naive"].iloc[0])
    for place, seconds in zip(places, frame.io_seconds, strict=True):
        right.text(place + 0.05, 1e3 * seconds, f" {naive / seconds:.1f} x", ha="left", va="bottom", fontsize=8)
    right.set_ylabel("reading the samples of an iteration [ms]")
    right.set_title("I/O time, and how many times as fast as without", loc="left")
    for axes in (left, right):
        axes.set_xticks(places, [fill(LOADERS[name], 14) for name in frame.loader], fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
    panels.legend(figure, ncols=2)
    panels.caption(figure, f"{frame.note.iloc[0]}.")
    return figure, frame


def _interval(axes: Axes, places: np.ndarray, frame: pd.DataFrame, column: str) -> None:
    middle = frame[column]
    ends = np.array([middle - frame[f"{column}_low"], frame[f"{column}_high"] - middle], float)
    if np.isfinite(ends).all():
        axes.errorbar(places, 1e3 * middle, yerr=1e3 * ends, fmt="none", ecolor="black", capsize=3, linewidth=0.9)
