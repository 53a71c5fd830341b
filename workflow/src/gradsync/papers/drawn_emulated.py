"""The emulated launches of a paper: iterations on limited links, with their predictions."""

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
from gradsync.papers.table import file, read

COLUMNS = 3


def emulated(paper: str, settings: Settings, results: Path) -> Drawn:
    """A panel per launch, a row per contender: emulated and predicted iteration, computation alone, bounds."""
    frame = read(file(results, paper, "emulated"))
    known = frame[frame.iteration_seconds.notna()]
    if known.empty:
        figure, axes = plt.subplots(figsize=(5, 3))
        why = frame.note.iloc[0] if len(frame) else f"No emulated launch for {paper} in this configuration."
        panels.say(axes, why)
        return figure, frame
    launches = list(known.groupby("launch", sort=False))
    columns = min(COLUMNS, len(launches))
    lines = -(-len(launches) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4.2 * columns, 0.6 + 2.25 * lines), squeeze=False)
    for axes in grid.flat[len(launches) :]:
        axes.set_axis_off()
    titles = [_title(part.iloc[0]) for _, part in launches]
    for axes, (launch, part), title in zip(grid.flat, launches, titles, strict=False):
        _launch(axes, part)
        alike = titles.count(title) > 1
        axes.set_title(_title(part.iloc[0], str(launch)) if alike else title, loc="left", fontsize=9)
    panels.legend(figure, ncols=3)
    missing = frame[frame.iteration_seconds.isna()]
    reasons = missing[~missing.launch.isin(known.launch)].groupby("launch", sort=False).note.first()
    panels.left_out(figure, (f"{launch}: {why}" for launch, why in reasons.items()))
    return figure, frame


def _launch(axes: Axes, part: pd.DataFrame) -> None:
    places, row = np.arange(len(part))[::-1], part.iloc[0]
    alone, whole = 1e3 * part.computation_seconds, 1e3 * part.iteration_seconds
    error = [whole - 1e3 * part.iteration_seconds_low, 1e3 * part.iteration_seconds_high - whole]
    if alone.any():
        axes.barh(places, alone, height=0.55, color="C0", label="computation, replayed")
    rest = np.maximum(whole - alone, 0)
    axes.barh(places, rest, height=0.55, left=alone, color="C1", label="the rest of the iteration")
    axes.errorbar(whole, places, xerr=np.array(error), fmt="none", ecolor="black", capsize=2, label="95 %")
    line: dict[str, Any] = {"linestyle": "", "color": "black", "markersize": 13, "markeredgewidth": 1.5}
    axes.plot(1e3 * part.hard_bound_seconds, places, marker="|", **line, label="hard bound, by the links")
    line |= {"color": "#777777", "markersize": 7}
    axes.plot(1e3 * part.model_bound_seconds, places, marker="x", **line, label="model bound, by all-reduces")
    mark: dict[str, Any] = {"linestyle": "", "color": "white", "markeredgecolor": "black", "markersize": 5}
    axes.plot(1e3 * part.predicted_seconds, places, marker="D", **mark, label="predicted from its parts")
    axes.set_yticks(places, part.scheme)
    axes.set_ylim(-0.6, len(part) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"iteration [ms]; {row.dilation:g} times as long here")


def _title(row: Any, launch: str = "") -> str:
    """What ran on how many hosts, by its name if others would have the same title; and the links."""
    batch = "" if pd.isna(row.batch) else f", {row.batch:.0f} samples each"
    share = "" if row.flow_share == 1 else f", a connection gets {row.flow_share:.2g} of it"
    link = f"{row.bits_per_second * row.dilation / 1e9:.3g} Gbit/s{share}"
    return f"{launch or f'{row.model} on {row.nodes} hosts'}, {row.topology}{batch}\n{link}"
