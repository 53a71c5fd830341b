"""Fig. 1, Tables 3 and 4: the parts of an iteration, and scaling efficiencies beside those published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.cases import SCHEMES
from gradsync.papers.cloud_topk.iterations import TITLES
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.table import file, read

PARTS = {
    "computation_seconds": "forward and backward",
    "exposed_compression_seconds": "selection, not hidden",
    "exposed_communication_seconds": "communication, not hidden",
    "lars_seconds": "LARS",
}
WIDTH = 0.27


def fig1(settings: Settings, results: Path) -> Drawn:
    """Bars of parts one upon the other, a panel per input size."""
    frame = read(file(results, "cloud_topk", "fig1"), ["model", "scheme", "assumption", "iteration_seconds", *PARTS])
    drawn = str(bench(settings).points[0])
    models = list(dict.fromkeys(frame.model))
    figure, grid = plt.subplots(1, len(models), figsize=(5.0 * len(models), 4.2), sharey=True)
    for axes, model in zip(grid, models, strict=True):
        part = frame[frame.model == model]
        schemes = list(dict.fromkeys(part.scheme))
        middle = part[part.assumption == drawn].set_index("scheme").loc[schemes]
        places, bottom = np.arange(len(schemes)), np.zeros(len(schemes))
        for number, (column, name) in enumerate(PARTS.items()):
            heights = 1e3 * middle[column].to_numpy()
            axes.bar(places, heights, 0.6, bottom=bottom, color=f"C{number}", label=name)
            bottom += heights
        ends = 1e3 * part.groupby("scheme").iteration_seconds.agg(["min", "max"]).loc[schemes].to_numpy().T
        error = np.array([bottom - ends[0], ends[1] - bottom]).clip(0)
        axes.errorbar(
            places, bottom, yerr=error, fmt="none", ecolor="black", capsize=3, label="iteration over the band"
        )
        axes.set_xticks(places, [SCHEMES[scheme] for scheme in schemes])
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("iteration [ms]")
        axes.tick_params(labelleft=True)
        axes.set_title(f"Fig. 1, {TITLES[model]}, without I/O\nsimulated on 16 nodes of 8 GPUs", loc="left")
    panels.legend(figure, ncols=3)
    return figure, frame


def table3(settings: Settings, results: Path) -> Drawn:
    """Efficiencies of the models of Table 3."""
    return _efficiencies("table3", settings, results)


def table4(settings: Settings, results: Path) -> Drawn:
    """Efficiencies of the input sizes of Table 4."""
    return _efficiencies("table4", settings, results)


def _efficiencies(table: str, settings: Settings, results: Path) -> Drawn:
    """Published ones as bars, simulated ones as points with the band; emulated ones are of another size."""
    frame = read(file(results, "cloud_topk", table), ["rung", "model", "scheme", "assumption", "efficiency", "nodes"])
    shown = frame[frame.rung.isin(["published", "simulated"])]
    models = [model for model in TITLES if model in set(shown.model)]
    schemes = [scheme for scheme in SCHEMES if scheme in set(shown.scheme)]
    emulated = frame[(frame.rung == "emulated") & frame.efficiency.notna()]
    figure, axes = plt.subplots(figsize=(2.2 * len(models) + 1.4, 4.2))
    drawn = str(bench(settings).points[0])
    for place, model in enumerate(models):
        for number, scheme in enumerate(schemes):
            x = place + WIDTH * (number - (len(schemes) - 1) / 2)
            at = shown[(shown.model == model) & (shown.scheme == scheme)]
            _scheme(axes, at, x, number, SCHEMES[scheme], drawn)
            here = 100 * emulated[(emulated.model == model) & (emulated.scheme == scheme)].efficiency
            mark: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "label": "emulated, 4 nodes of 2"}
            axes.plot([x + 0.08] * len(here), here, "^", **mark)
    axes.axhline(100, color="black", linewidth=0.8)
    axes.set_xticks(range(len(models)), [TITLES[model].replace(", ", "\n") for model in models])
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("scaling efficiency [%]")
    place_name = table.replace("table", "Table ")
    axes.set_title(f"{place_name}, 16 nodes of 8 GPUs: bars published,\npoints simulated, lines the band", loc="left")
    panels.legend(figure, ncols=4)
    return figure, frame


def _scheme(axes: Axes, at: pd.DataFrame, x: float, number: int, name: str, drawn: str) -> None:
    by_rung = {rung: part.set_index("assumption").efficiency for rung, part in at.groupby("rung")}
    color = f"C{number}"
    if "published" in by_rung:
        axes.bar(x, 100 * by_rung["published"].iloc[0], 0.92 * WIDTH, color=color, alpha=0.45, label=name)
    if "simulated" in by_rung:
        values = 100 * by_rung["simulated"]
        error = np.array([[values[drawn] - values.min()], [values.max() - values[drawn]]])
        look: dict[str, Any] = {"fmt": "o", "markersize": 5, "color": color, "markeredgecolor": "black"}
        axes.errorbar(x, values[drawn], yerr=error, ecolor="black", capsize=3, **look)
