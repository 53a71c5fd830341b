"""Figures of the papers, drawn from tables and traces; each with its data as CSV.

A figure whose data is missing says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from gradsync.errors import InputError
from gradsync.papers.mgwfbp import examples, rows, scaling
from gradsync.render import evaluation, panels, style, timeline
from gradsync.results import write_whole
from gradsync.settings import Settings

Drawn = tuple[Figure, pd.DataFrame]


def write(paper: str, name: str, settings: Settings, results: Path) -> list[str]:
    """`figures/<paper>/<name>.{svg,pdf,png,csv}` below `results`; gives their paths."""
    if (paper, name) not in FIGURES:
        raise InputError(
            f"figure {paper} {name} does not exist; there are: {', '.join(' '.join(key) for key in FIGURES)}"
        )
    style.use()
    figure, data = FIGURES[paper, name](settings, results)
    folder = results / "figures" / paper
    for kind in style.FORMATS:
        style.save(figure, folder / f"{name}.{kind}")
    plt.close(figure)
    write_whole(folder / f"{name}.csv", data.to_csv(index=False))
    return [str(folder / f"{name}.{kind}") for kind in (*style.FORMATS, "csv")]


def _table(results: Path, name: str) -> pd.DataFrame:
    return rows.read(results / "tables" / "mgwfbp" / f"{name}.csv")


def _timelines(*cases: tuple[str, str, str]) -> Callable[[Settings, Path], Drawn]:
    """Panels (title, case, scheme) of four-layer examples."""

    def drawn(settings: Settings, results: Path) -> Drawn:
        figure, grid = plt.subplots(len(cases), 1, figsize=(7, 0.6 + 1.25 * len(cases)), squeeze=False, sharex=True)
        frames = []
        longest = 0.0
        for axes, (title, case, name) in zip(grid[:, 0], cases, strict=True):
            _, plan, trace = examples.example(case, name)
            window = timeline.period(trace)
            timeline.panel(axes, trace, window, labels=timeline.message_labels(plan), unit="drawn units")
            end = trace.iteration_seconds()
            longest = max(longest, window[1] - window[0])
            axes.axvline(end, color="black", linewidth=0.8, linestyle="--")
            exposed = trace.exposed_communication_seconds()
            axes.set_title(f"{title}: iteration {end:.2f}, exposed communication {exposed:.2f}", loc="left")
            axes.set_yticklabels(trace.lanes)
            frames.append(pd.DataFrame(trace.of(0)).assign(panel=title))
        for axes in grid[:-1, 0]:
            axes.set_xlabel("")
        grid[-1, 0].set_xlim(0, longest)
        timeline.legend(figure, trace)
        return figure, pd.concat(frames)

    return drawn


def _lines(axes: Axes, frame: pd.DataFrame, value: str, shown: tuple[str, ...], settings: Settings) -> None:
    """A line a scheme at the centre of the band, the band behind it."""
    for name in shown:
        part = frame[frame.scheme == name]
        middle = part[part.assumption.str.startswith(scaling.CENTRE)].groupby("nodes")[value].first()
        band = part.groupby("nodes")[value].agg(["min", "max"])
        # the optimum often lies on top of another line: dashed, so that both are seen
        (line,) = axes.plot(
            middle.index, middle, "--o" if name == "optimal" else "-o", label=panels.label(name, settings)
        )
        axes.fill_between(band.index, band["min"], band["max"], color=line.get_color(), alpha=0.15, linewidth=0)


def _fig9(name: str, title: str) -> Callable[[Settings, Path], Drawn]:
    def drawn(settings: Settings, results: Path) -> Drawn:
        frame = _table(results, name)
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

    return drawn


def _gap(settings: Settings, results: Path) -> Drawn:
    frame = _table(results, "gap")
    figure, grid = plt.subplots(1, 2, figsize=(8.4, 3.7), sharey=True)
    shown = ("mgwfbp", "mgwfbp_as_printed", scaling.BEST_BUCKET, "fixed_buckets")
    for axes, (model, part) in zip(grid, frame.groupby("model"), strict=True):
        if part.over_optimal.isna().all():
            panels.say(axes, f"{model}: {part.note.iloc[0]}")
            continue
        _lines(axes, part, "over_optimal", shown, settings)
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        panels.nodes_axis(axes, np.unique(part.nodes))
        axes.set_title(f"{model}, simulated", loc="left")
        axes.set_ylabel("iteration time / exact optimum")
        axes.tick_params(labelleft=True)
        axes.legend()
    return figure, frame


def _training(settings: Settings, results: Path) -> Drawn:
    """A row a launch: iteration times with what was predicted of them, and how far off the prediction is."""
    frame = _table(results, "training")
    measured = frame[frame.rung == "measured"]
    if measured.empty:
        figure, axes = plt.subplots(figsize=(5, 3))
        panels.say(axes, "No training in this configuration.")
        return figure, frame
    jobs = list(measured.groupby(["model", "nodes"], sort=False))
    heights = [1.2 + 0.19 * len(part) for _, part in jobs]
    figure, grid = plt.subplots(
        len(jobs), 2, figsize=(9, sum(heights)), squeeze=False, width_ratios=[3, 2], height_ratios=heights
    )
    for (left, right), ((model, ranks), part) in zip(grid, jobs, strict=True):
        simulated = frame[(frame.rung == "simulated") & (frame.model == model) & (frame.nodes == ranks)]
        y = dict(zip(part.scheme, np.arange(len(part))[::-1], strict=True))
        middle = part.iteration_seconds
        error = [middle - part.iteration_seconds_low, part.iteration_seconds_high - middle]
        places = list(y.values())
        left.errorbar(1e3 * middle, places, xerr=1e3 * np.array(error), fmt="o", capsize=3, label="measured, 95 %")
        predicted = [y[scheme] for scheme in simulated.scheme]
        left.plot(1e3 * simulated.iteration_seconds, predicted, "D", label="predicted from other runs")
        left.set_yticks(places, list(y))
        left.set_xlim(left=0)
        left.set_xlabel("iteration [ms]")
        shared = f" ({part.note.iloc[0]})" if part.note.iloc[0] else ""
        left.set_title(f"{model}, {ranks} ranks on this machine{shared}", loc="left")
        _prediction_errors(right, part.dropna(subset="predicted_over_measured"), y)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2)
    return figure, frame


def _prediction_errors(axes: Axes, part: pd.DataFrame, y: dict[str, Any]) -> None:
    places = [y[scheme] for scheme in part.scheme]
    axes.axvspan(-10, 10, alpha=0.15, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.barh(places, 100 * (part.predicted_over_measured - 1), height=0.6, label="with the slow-down")
    plain = 100 * (part.predicted_over_measured_without_interference - 1)
    axes.plot(plain, places, "k|", label="without")
    axes.set_ylim(-0.6, len(y) - 0.4)
    axes.set_yticks([])
    axes.set_xlabel("predicted over measured - 1 [%]")
    error = 100 * (part.predicted_over_measured - 1).abs().mean()
    axes.set_title(f"mean error {error:.0f} %; | without slow-down", loc="left")


FIGURES: dict[tuple[str, str], Callable[[Settings, Path], Drawn]] = {
    ("mgwfbp", "fig1"): _timelines(("naive S-SGD", "case3", "naive")),
    ("mgwfbp", "fig2"): _timelines(("WFBP", "case3", "wfbp")),
    ("mgwfbp", "fig3"): _timelines(
        ("Case 1, all hidden", "case1", "wfbp"),
        ("Case 2, backlog drains", "case2", "wfbp"),
        ("Case 3, backlog stays", "case3", "wfbp"),
    ),
    ("mgwfbp", "fig4"): _timelines(("WFBP", "case3", "wfbp"), ("MG-WFBP, layers 4 and 3 merged", "case3", "mgwfbp")),
    ("mgwfbp", "counterexample"): _timelines(
        ("Algorithm 1", "counterexample", "mgwfbp"), ("exact optimum", "counterexample", "optimal")
    ),
    ("mgwfbp", "fig5a"): evaluation.fig5a,
    ("mgwfbp", "fig5b"): evaluation.fig5b,
    ("mgwfbp", "fig6"): evaluation.speedup("fig6", "Fig. 6"),
    ("mgwfbp", "fig7"): evaluation.speedup("fig7", "Fig. 7"),
    ("mgwfbp", "fig8"): evaluation.fig8,
    ("mgwfbp", "fig9a"): _fig9("fig9a", "Fig. 9(a) GoogLeNet"),
    ("mgwfbp", "fig9b"): _fig9("fig9b", "Fig. 9(b) ResNet-50"),
    ("mgwfbp", "gap"): _gap,
    ("mgwfbp", "training"): _training,
}
