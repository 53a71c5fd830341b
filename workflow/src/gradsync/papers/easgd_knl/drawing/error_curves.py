"""Fig. 6, 8 and 13: the test error over time, pair by pair and of all methods together, and the loss by machines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.names import FIGURES
from gradsync.papers.easgd_knl.training_runs import OBSERVED
from gradsync.papers.labels import labels
from gradsync.papers.table import file, read

PAIRS = (
    ("6.1", "async_sgd", "async_easgd"),
    ("6.2", "async_msgd", "async_measgd"),
    ("6.3", "hogwild_sgd", "hogwild_easgd"),
    ("6.4", "original_easgd", "sync_easgd3"),
)
OURS = ("async_easgd", "async_measgd", "hogwild_easgd", "sync_easgd3")  # of the paper; the others were there before
RUNGS = {
    "measured": "time on this machine [s]",
    "emulated": "time on emulated hosts [s]",
    "simulated": "time on the GPU node, simulated [s]",
}
LEAST = 3e-3  # an error below it is drawn there: about one test sample of digits
CURVES = ["rung", "scheme", "assumption", "seed", "seconds", "error", "iterations"]


def fig6(settings: Settings, results: Path) -> Drawn:
    """A column per pair of methods, a row per clock; medians of the seeds, shades over all of them."""
    frame = _middle(read(file(results, "easgd_knl", "curves"), CURVES))
    trained = set(frame.scheme)
    shown = [pair for pair in PAIRS if trained & {*pair}]
    rungs = _rungs(frame)
    size = (max(3.4 * len(shown), 4.6), 3.1 * len(rungs))
    figure, grid = plt.subplots(len(rungs), max(len(shown), 1), figsize=size, sharey=True, squeeze=False)
    for row, (rung, axis) in zip(grid, rungs.items(), strict=True):
        if not shown:
            panels.say(row[0], "none of these methods is trained in this configuration")
        for axes, (place, *pair) in zip(row, shown, strict=bool(shown)):
            for scheme in [name for name in pair if name in trained]:
                _curve(axes, frame[frame.rung == rung], scheme, settings)
            axes.set_yscale("log")
            axes.set_xlabel(axis, fontsize=8)
            axes.set_title(f"Fig. {place}, {rung}", loc="left")
            axes.legend(fontsize=7)
        row[0].set_ylabel("test error")
    return figure, frame


def fig8(settings: Settings, results: Path) -> Drawn:
    """A panel per clock: curves, and trainings of several lengths as points if there are any."""
    frame = _middle(read(file(results, "easgd_knl", "curves"), CURVES))
    points = read(file(results, "easgd_knl", "fig6"), ["rung", "scheme", "point", "seconds", "error"])
    points = _middle(points[points.point.notna()])
    points["seconds"] = points.seconds.fillna(points[f"{OBSERVED}seconds"])
    points["error"] = points.error.fillna(points[f"{OBSERVED}error"])
    rungs = _rungs(frame)
    figure, grid = plt.subplots(1, len(rungs), figsize=(5.2 * len(rungs), 4.2), sharey=True, squeeze=False)
    for axes, (rung, axis) in zip(grid[0], rungs.items(), strict=True):
        for scheme in [name for name in FIGURES if name in set(frame.scheme)]:
            _curve(axes, frame[frame.rung == rung], scheme, settings, shade=False)
            own = points[(points.rung == rung) & (points.scheme == scheme)]
            if own.point.nunique() > 1:
                style = {"marker": "o", "linestyle": "", "markersize": 4, "color": _color(scheme)}
                axes.plot(own.seconds, own.error.clip(LEAST), **style)
        axes.set_yscale("log")
        axes.set_xlabel(axis)
        axes.set_title(f"Fig. 8, {rung}", loc="left")
    grid[0, 0].set_ylabel("test error")
    panels.legend(figure, ncols=4)
    return figure, frame


def _rungs(frame: pd.DataFrame) -> dict[str, str]:
    """The clocks that there are curves of, and the names of their axes; without any, two panels that say so."""
    return {rung: axis for rung, axis in RUNGS.items() if rung in set(frame.rung)} or {
        rung: RUNGS[rung] for rung in ("measured", "simulated")
    }


def _middle(frame: pd.DataFrame) -> pd.DataFrame:
    """Of several points of a band, the first that each rung has of a method."""
    firsts = frame.groupby(["rung", "scheme"]).assumption.transform("first") if len(frame) else frame.assumption
    return frame[frame.assumption == firsts].copy()


def _apart(of_rung: pd.DataFrame, part: pd.DataFrame) -> str:
    """What the point of a method has that is another than the first of its rung."""
    if part.empty:
        return ""
    first, own = (str(each.assumption.iloc[0]).split(", ") for each in (of_rung, part))
    return "".join(f", {each.replace('_', ' ')}" for each in own if each not in first)


def _curve(axes: Axes, of_rung: pd.DataFrame, scheme: str, settings: Settings, shade: bool = True) -> None:
    """A curve as long as the shortest of its seeds."""
    part = of_rung[of_rung.scheme == scheme]
    by_test = part[part.groupby("iterations").seed.transform("nunique") == part.seed.nunique()].groupby("iterations")
    seconds = by_test.seconds.median()
    error = by_test.error.agg(["median", "min", "max"]).clip(lower=LEAST)
    line = "-" if scheme in OURS else "--"
    label = f"{labels(settings)(scheme)}{_apart(of_rung, part)}"
    axes.plot(seconds, error["median"], line, color=_color(scheme), label=label, linewidth=1.3)
    if shade and part.seed.nunique() > 1:
        axes.fill_between(seconds, error["min"], error["max"], color=_color(scheme), alpha=0.15, linewidth=0)


def _color(scheme: str) -> str:
    return f"C{FIGURES.index(scheme) % 8}"


def fig13(settings: Settings, results: Path) -> Drawn:
    """Fig. 13: the loss after half of and the whole time of one machine, by machines; a panel per clock."""
    frame = read(file(results, "easgd_knl", "fig13"), ["rung", "nodes", "share", "loss", "assumption"])
    if frame.empty:
        figure, axes = plt.subplots(figsize=(5, 3))
        panels.say(axes, "No training on several machines in this configuration: config/elastic.yaml has some.")
        return figure, frame
    frame = _middle(frame)
    frame["loss"] = frame.loss.fillna(frame[f"{OBSERVED}loss"])
    frame["seconds"] = frame.seconds.fillna(frame[f"{OBSERVED}seconds"])
    rungs = _rungs(frame)
    figure, grid = plt.subplots(1, 2 * len(rungs), figsize=(6.2 * len(rungs), 3.6))
    for number, rung in enumerate(rungs):
        for axes, (column, name) in zip(
            grid[number :: len(rungs)], (("loss", "loss"), ("seconds", "time [s]")), strict=True
        ):
            _bars(axes, frame[frame.rung == rung], column)
            axes.set_ylabel(name)
            axes.set_title(f"Fig. 13, {rung}: {'after a time' if column == 'loss' else 'to a loss'}", loc="left")
    panels.legend(figure, ncols=2)
    return figure, frame


def _bars(axes: Axes, frame: pd.DataFrame, column: str) -> None:
    nodes = sorted(frame.nodes.dropna().unique())
    for number, (share, part) in enumerate(frame.groupby("share")):
        by_nodes = part.set_index("nodes")[column]
        places = np.arange(len(nodes)) + 0.38 * (number - 0.5)
        axes.bar(places, [by_nodes.get(each, np.nan) for each in nodes], 0.35, label=f"{share:g} of the time of one")
    axes.set_xticks(range(len(nodes)), [f"{each:g} machine{'s' if each > 1 else ''}" for each in nodes], fontsize=8)
    axes.grid(visible=False, axis="x")
