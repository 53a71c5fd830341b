"""The real runs of a paper: iteration times with their predictions."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.labels import Labels, labels
from gradsync.papers.ranking import ALIKE, FASTEST, over_fastest, ranked
from gradsync.papers.table import file, read
from gradsync.papers.training import titled

TITLE = 60  # characters of a line


def training(paper: str, settings: Settings, results: Path) -> Drawn:
    """A row per launch: iteration times with their predictions, and how far off these are."""
    frame = read(file(results, paper, "training"))
    measured = frame[frame.rung == "measured"]
    if measured.empty:
        figure, axes = plt.subplots(figsize=(5, 3))
        panels.say(axes, f"No training for {paper} in this configuration.")
        return figure, frame
    jobs = list(measured.groupby("launch", sort=False))
    heights = [1.2 + 0.19 * len(part) for _, part in jobs]
    any_predicted = "predicted_over_measured" in measured and bool(measured.predicted_over_measured.notna().any())
    widths = [3, 2] if any_predicted else [1]
    figure, grid = plt.subplots(
        *(len(jobs), len(widths)),
        figsize=(9 if any_predicted else 6, 0.3 + sum(heights)),
        squeeze=False,
        width_ratios=widths,
        height_ratios=heights,
    )
    unpredicted: list[str] = []
    for line, (launch, part) in zip(grid, jobs, strict=True):
        part = ranked(part)
        simulated = frame[(frame.rung == "simulated") & (frame.launch == launch)]
        y = dict(zip(part.scheme, np.arange(len(part))[::-1], strict=True))
        _times(line[0], part, simulated, y, labels(settings))
        if not any_predicted:
            continue
        predicted = part.dropna(subset="predicted_over_measured")
        if predicted.empty:
            line[1].set_axis_off()
            why = "it is not profiled" if simulated.empty else "some of its times were taken under load"
            unpredicted.append(f"{titled(part)} is not predicted, since {why}")
        else:
            _prediction_errors(line[1], predicted, y)
    panels.legend(figure, ncols=2, loc="outside lower left")
    panels.left_out(figure, unpredicted)
    return figure, frame


def _times(axes: Axes, part: pd.DataFrame, simulated: pd.DataFrame, y: dict[str, Any], label_of: Labels) -> None:
    middle = part.iteration_seconds
    error = [middle - part.iteration_seconds_low, part.iteration_seconds_high - middle]
    places = list(y.values())
    axes.errorbar(1e3 * middle, places, xerr=1e3 * np.array(error), fmt="o", capsize=3, label="measured, 95 %")
    if not simulated.empty:
        predicted = [y[scheme] for scheme in simulated.scheme]
        axes.plot(1e3 * simulated.iteration_seconds, predicted, "D", label="predicted from other runs")
    words = [over_fastest(row, part)[1] for _, row in part.iterrows()]
    marks = [f" ({word})" if word in (FASTEST, ALIKE) else "" for word in words]
    axes.set_yticks(places, [label_of(name) + mark for name, mark in zip(part.scheme, marks, strict=True)])
    axes.set_ylim(-0.6, len(y) - 0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("iteration [ms]")
    notes = [part.note.iloc[0]] if part.note.iloc[0] else []
    # a line of its own: a longer title would leave the axes no room
    title = [f"{titled(part)} of this machine", *(fill(note, TITLE) for note in notes)]
    axes.set_title("\n".join(title), loc="left")


def _prediction_errors(axes: Axes, part: pd.DataFrame, y: dict[str, Any]) -> None:
    places = [y[scheme] for scheme in part.scheme]
    axes.axvspan(-10, 10, alpha=0.15, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.barh(places, 100 * (part.predicted_over_measured - 1), height=0.6)
    plain = 100 * (part.predicted_over_measured_without_interference - 1)
    axes.plot(plain, places, "k|")
    axes.set_ylim(-0.6, len(y) - 0.4)
    axes.set_yticks([])
    axes.set_xlabel("predicted over measured - 1 [%]")
    error = 100 * (part.predicted_over_measured - 1).abs().mean()
    axes.set_title(f"mean error {error:.0f} %; | without slow-down", loc="left")
