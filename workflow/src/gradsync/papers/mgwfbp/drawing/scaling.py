"""Fig. 9 of the MG-WFBP paper, and the gap to the exact optimum: a line at the centre of a band of assumptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.mgwfbp import scaling
from gradsync.papers.table import file, read


def _lines(axes: Axes, frame: pd.DataFrame, value: str, shown: tuple[str, ...], settings: Settings) -> None:
    """A line per scheme at the centre of the band, the band behind it."""
    for name in shown:
        part = frame[frame.scheme == name]
        middle = part[part.assumption.str.startswith(scaling.CENTRE)].groupby("nodes")[value].first()
        band = part.groupby("nodes")[value].agg(["min", "max"])
        # the optimum often lies on top of another line: it is dashed, so that both are seen
        (line,) = axes.plot(middle.index, middle, "--o" if name == "optimal" else "-o", label=labels(settings)(name))
        axes.fill_between(band.index, band["min"], band["max"], color=line.get_color(), alpha=0.15, linewidth=0)


def fig9(name: str, title: str) -> Callable[[Settings, Path], Drawn]:
    """A figure of speed-up against nodes."""

    def draw(settings: Settings, results: Path) -> Drawn:
        frame = read(file(results, "mgwfbp", name))
        figure, axes = plt.subplots(figsize=(5.2, 3.9))
        if frame.iteration_seconds.isna().all():
            panels.say(axes, f"{title}: {frame.note.iloc[0]}")
            return figure, frame
        _lines(axes, frame, "speedup", ("wfbp", "single", "mgwfbp", "optimal"), settings)
        nodes = np.unique(frame.nodes)
        axes.plot(nodes, nodes, color="black", linewidth=0.8, linestyle=":", label="linear")
        panels.nodes_axis(axes, nodes)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.set_ylabel("speed-up over one K80")
        axes.set_title(f"{title}, simulated\nline: {scaling.CENTRE}; shade: band of assumptions", loc="left")
        axes.legend()
        return figure, frame

    return draw


def gap(settings: Settings, results: Path) -> Drawn:
    """Iteration time over that of the exact optimum, a panel per model."""
    frame = read(file(results, "mgwfbp", "gap"))
    shown = ("mgwfbp", "mgwfbp_as_printed", scaling.BEST_BUCKET, "fixed_buckets")
    by_model = {str(model): part for model, part in frame.groupby("model")}
    known = {model: part for model, part in by_model.items() if part.over_optimal.notna().any()}
    reasons = [f"{model}: {part.note.iloc[0]}" for model, part in by_model.items() if model not in known]
    if not known:
        figure, axes = plt.subplots(figsize=(4.2, 3.7))
        panels.say(axes, "; ".join(reasons))
        return figure, frame
    figure, grid = plt.subplots(1, len(known), figsize=(4.2 * len(known), 3.7), sharey=True, squeeze=False)
    for axes, (model, part) in zip(grid[0], known.items(), strict=True):
        _lines(axes, part, "over_optimal", shown, settings)
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        panels.nodes_axis(axes, np.unique(part.nodes))
        axes.set_title(f"{MODELS[model]}, simulated", loc="left")
        axes.set_ylabel("iteration time / exact optimum")
        axes.tick_params(labelleft=True)
        axes.legend()
    panels.left_out(figure, reasons)
    return figure, frame
