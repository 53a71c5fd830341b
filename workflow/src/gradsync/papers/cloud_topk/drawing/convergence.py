"""Fig. 10: test accuracy over epochs, a panel per model, data and density, and one of schemes that are not the paper's.

Dense training is in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.convergence import DENSE, EPOCHS
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.table import file, read

WITHOUT = "without error feedback"
BEYOND = "beyond the paper"  # the panel of schemes that are not the paper's


def fig10(settings: Settings, results: Path) -> Drawn:
    """Curves of the mean over seeds, their range shaded; dashed without error feedback, squares of what is beyond."""
    frame = read(file(results, "cloud_topk", "fig10_epochs"), EPOCHS)
    shown = list(_panels(frame))
    if not shown:
        figure, axes = plt.subplots(figsize=(5, 3))
        panels.say(axes, "No training of this paper in this configuration.")
        return figure, frame
    figure, grid = plt.subplots(1, len(shown), figsize=(4.8 * len(shown), 4.2), squeeze=False)
    for axes, (curves, which) in zip(grid[0], shown, strict=True):
        _curves(axes, curves, _colours(frame, which), settings)
        row = curves.iloc[0]
        axes.set_title(
            f"{MODELS.get(row.model, row.model)} on {row['data']}, {row.nodes} ranks,\n{which}, "
            f"{row.seeds} seed(s), measured here",
            loc="left",
        )
    grid[0, 0].set_ylabel("test accuracy (mean and range over seeds)")
    panels.legend(figure, ncols=2)
    return figure, frame


def _panels(frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, str]]:
    """(rows, what they show): of each launch a density after the other, then what is no scheme of the paper."""
    for _, launch in frame.groupby("launch", sort=False):
        dense, density = launch.scheme == DENSE, launch.assumption.map(_density)
        for each in filter(None, dict.fromkeys(density)):
            yield launch[dense | (density == each)], each
        if (others := (density == "") & ~dense).any():
            yield launch[dense | others], BEYOND


def _colours(frame: pd.DataFrame, which: str) -> dict[str, str]:
    """Of dense training one in all panels, and of each scheme one in all panels of its kind."""
    beyond = (frame.assumption == "") & (frame.scheme != DENSE)
    names = dict.fromkeys([DENSE, *frame.scheme[beyond if which == BEYOND else ~beyond]])
    return {name: f"C{number}" for number, name in enumerate(names)}


def _density(point: str) -> str:
    return point.partition(",")[0]


def _curves(axes: Axes, part: pd.DataFrame, colours: dict[str, str], settings: Settings) -> None:
    label_of = labels(settings)
    for _, curve in part.groupby("contender", sort=False):
        row = curve.iloc[0]
        lossy = row.assumption.endswith(WITHOUT)
        label = label_of(row.scheme) + (f", {WITHOUT}" if lossy else "")
        colour = colours[row.scheme]
        mark = "o" if row.assumption or row.scheme == DENSE else "s"
        axes.plot(curve.epoch, curve.accuracy, "--" if lossy else "-", marker=mark, color=colour, label=label)
        axes.fill_between(curve.epoch, curve.accuracy_least, curve.accuracy_most, color=colour, alpha=0.08, linewidth=0)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, 1)
