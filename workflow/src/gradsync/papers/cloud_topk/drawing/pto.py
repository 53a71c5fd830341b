"""LARS by PTO over the number of GPUs, beside the serial time: where it gets slower again, and what is published."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.pto import TIMED, crossing
from gradsync.papers.labels import MODELS
from gradsync.papers.table import file, read

COLUMNS = ["rung", "model", "optimizer", "workers", "assumption", "serial_seconds", "pto_seconds"]
SHOWN = "lars"


def pto(settings: Settings, results: Path) -> Drawn:
    """A panel per model; a line per network, at both ways in which time may be spread over layers."""
    frame = read(file(results, "cloud_topk", "pto"), COLUMNS)
    frame = frame[frame.optimizer == SHOWN]
    figure, grid = plt.subplots(1, len(TIMED), figsize=(5.2 * len(TIMED), 4.0), squeeze=False)
    for axes, model in zip(grid[0], TIMED, strict=True):
        _panel(axes, frame[frame.model == model])
        axes.set_title(f"LARS of {MODELS[model]}, simulated", loc="left")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    return figure, frame


def _panel(axes: Axes, frame: pd.DataFrame) -> None:
    simulated, published = (frame[frame.rung == rung] for rung in ("simulated", "published"))
    axes.axhline(1e3 * simulated.serial_seconds.iloc[0], color="black", linewidth=1, label="serial, published")
    drawn = [(name, part) for name, part in simulated.groupby("assumption", sort=False) if "inside fast" in str(name)]
    slower = []
    for name, part in drawn:
        network, gather, _, by = str(name).split(", ")
        label = f"PTO, {network}, {gather.removeprefix('all gather ').replace('_', ' ')}, {by}"
        style = "-" if by.endswith("layers") else "--"
        color = "C1" if network.endswith("poor") else "C0"
        axes.plot(part.workers, 1e3 * part.pto_seconds, style, color=color, marker=".", label=label)
        most = crossing(part)
        if most is not None and most < part.workers.max():
            slower.append(f"{network}, {by}: faster than serial up to {most}")
    axes.text(0.02, 0.97, "\n".join(slower), va="top", transform=axes.transAxes, fontsize=8)
    axes.plot(published.workers, 1e3 * published.pto_seconds, "k*", label="PTO, published")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted({*simulated.workers}), [str(count) for count in sorted({*simulated.workers})])
    axes.set_xlabel("GPUs, eight a node")
    axes.set_ylabel("ratios and their All-Gather [ms]")
