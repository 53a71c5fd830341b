"""Fig. 7 and 8: aggregation by message size, and the steps of HiTopKComm by density."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.steps import METHODS, STEP_NAMES
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.labels import MODELS
from gradsync.papers.table import file, read

SMALL = 8e6  # elements of the largest small tensor
MARKS = "osD^"
SPARSE = ("allgather_sparse", "hitopk")  # of the methods
STEPS_DRAWN = tuple(step for step in STEP_NAMES if step != "sum")  # the sum is too short to be seen
WIDTH = 0.7


def fig7(settings: Settings, results: Path) -> Drawn:
    """Small and large tensors: a line per method at the point that is drawn, the band of links as a shade."""
    frame = read(file(results, "cloud_topk", "fig7"), ["rung", "scheme", "elements", "nodes", "density", "seconds"])
    simulated = frame[frame.rung == "simulated"]
    drawn = ", ".join(bench(settings).points[0].links)
    emulated = frame[(frame.rung == "emulated") & frame.seconds.notna()]
    columns = 2 if emulated.empty else 3
    figure, grid = plt.subplots(1, columns, figsize=(5.2 * columns, 4.2))
    small = simulated.elements <= SMALL
    for axes, name, part in zip(grid, ("small", "large"), (simulated[small], simulated[~small]), strict=False):
        _lines(axes, part, drawn)
        first = part.iloc[0]
        size = f"{first.nodes:.0f} nodes of {first.gpus_per_node:.0f} GPUs, density {first.density:g}"
        axes.set_title(f"Fig. 7, {name} tensors, simulated\n{size}", loc="left")
    if not emulated.empty:
        _emulated(grid[2], emulated)
    panels.legend(figure, ncols=4)
    panels.left_out(figure, [f"emulated: {note}" for note in _notes(frame)] if emulated.empty else [])
    return figure, frame


def _lines(axes: Axes, part: pd.DataFrame, drawn: str) -> None:
    for number, (method, name) in enumerate(METHODS.items()):
        of_method = part[part.scheme == method]
        ends = 1e3 * of_method.groupby("elements").seconds.agg(["min", "max"])
        middle = 1e3 * of_method[of_method.assumption == drawn].set_index("elements").seconds
        color = f"C{number}"
        axes.plot(middle.index, middle, marker=MARKS[number], markersize=4, color=color, label=name)
        axes.fill_between(ends.index, ends["min"], ends["max"], color=color, alpha=0.13, linewidth=0)
    sizes = sorted(set(part.elements))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size / 1e6:g}M" if size >= 1e6 else f"{size / 1e3:g}k" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("elements")
    axes.set_ylabel("aggregation [ms]")


def _emulated(axes: Axes, part: pd.DataFrame) -> None:
    # a dense method has a row for each density, also for one that no sparse method ran at
    ran = part.groupby(["elements", "density"]).scheme.transform(lambda schemes: schemes.isin(SPARSE).any())
    groups = list(part[ran].groupby(["elements", "density"], sort=True))
    for number, (method, name) in enumerate(METHODS.items()):
        for place, (_, group) in enumerate(groups):
            at = group[group.scheme == method]
            if at.empty:
                continue
            row, x = at.iloc[0], place + 0.2 * (number - 1.5)
            axes.bar(x, 1e3 * row.seconds, 0.18, color=f"C{number}", label=name)
            if not pd.isna(row.seconds_low):
                error = np.array([[row.seconds - row.seconds_low], [row.seconds_high - row.seconds]])
                axes.errorbar(x, 1e3 * row.seconds, yerr=1e3 * error, fmt="none", ecolor="black", capsize=2)
    axes.set_xticks(range(len(groups)), [f"{float(str(size)) / 1e6:g}M\n{density}" for (size, density), _ in groups])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("elements, density")
    axes.set_ylabel("aggregation [ms]")
    row = part.iloc[0]
    axes.set_title(f"emulated here\n{row.nodes:.0f} nodes of {row.gpus_per_node:.0f} GPUs", loc="left")


def fig8(settings: Settings, results: Path) -> Drawn:
    """Bars of steps one upon the other by density, a panel per model; the band of their sum as a line."""
    frame = read(file(results, "cloud_topk", "fig8"), ["rung", "model", "step", "density", "nodes", "seconds"])
    simulated = frame[(frame.rung == "simulated") & frame.step.isin(STEPS_DRAWN)]
    drawn = ", ".join(bench(settings).points[0].links)
    models = list(dict.fromkeys(simulated.model))
    figure, grid = plt.subplots(1, len(models), figsize=(5.2 * len(models), 4.2), squeeze=False)
    for axes, model in zip(grid[0], models, strict=True):
        part = simulated[simulated.model == model]
        densities = sorted(set(part.density))
        places, bottom = np.arange(len(densities)), np.zeros(len(densities))
        middle = part[part.assumption == drawn].pivot_table(index="density", columns="step", values="seconds")
        for number, step in enumerate(STEPS_DRAWN):
            heights = 1e3 * middle.loc[densities, step].to_numpy()
            axes.bar(places, heights, WIDTH, bottom=bottom, color=f"C{number}", label=STEP_NAMES[step])
            bottom += heights
        sums = 1e3 * part.groupby(["density", "assumption"]).seconds.sum().groupby("density").agg(["min", "max"])
        error = np.array([bottom - sums["min"], sums["max"] - bottom]).clip(0)
        axes.errorbar(
            places, bottom, yerr=error, fmt="none", ecolor="black", capsize=3, label="all of them over the band"
        )
        axes.set_xticks(places, [f"{density:g}" for density in densities])
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("density")
        axes.set_ylabel("HiTopKComm [ms]")
        row = part.iloc[0]
        size = f"{row.nodes:.0f} nodes of {row.gpus_per_node:.0f} GPUs"
        axes.set_title(f"Fig. 8, {MODELS[model]}, 32-bit values, simulated\n{size}", loc="left")
    panels.legend(figure, ncols=3)
    panels.left_out(figure, [f"emulated: {note}" for note in _notes(frame)])
    return figure, frame


def _notes(frame: pd.DataFrame) -> list[str]:
    """Why emulated values are missing."""
    return list(dict.fromkeys(frame.note[(frame.rung == "emulated") & frame.seconds.isna()]))
