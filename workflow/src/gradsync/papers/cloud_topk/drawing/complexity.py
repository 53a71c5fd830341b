"""Steps of NaiveAG and HiTopKComm: on the links beside the formula as printed, a panel per density."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.complexity import STEPS
from gradsync.papers.table import file, read

WIDTH = 0.38
COLUMNS = {"formula_seconds": "formula as printed", "rounds_seconds": "every transfer on its links"}


def complexity(settings: Settings, results: Path) -> Drawn:
    """Bars by step, and above them how many times as long as by the formula, where that differs."""
    frame = read(file(results, "cloud_topk", "complexity"), ["step", "nodes", "gpus_per_node", "density", *COLUMNS])
    densities = list(dict.fromkeys(frame.density))
    figure, grid = plt.subplots(1, len(densities), figsize=(5.4 * len(densities), 4.1), squeeze=False)
    for axes, density in zip(grid[0], densities, strict=True):
        part = frame[frame.density == density].set_index("step").loc[list(STEPS)]
        places = np.arange(len(STEPS))
        for number, (column, name) in enumerate(COLUMNS.items()):
            axes.bar(places + WIDTH * (number - 0.5), 1e3 * part[column], 0.92 * WIDTH, color=f"C{number}", label=name)
        for place, ratio, seconds in zip(places, part.over_formula, part.rounds_seconds, strict=True):
            if abs(ratio - 1) > 0.01:
                axes.text(place + WIDTH / 2, 1e3 * seconds, f"x {ratio:.3g}", ha="center", va="bottom", fontsize=8)
        axes.set_xticks(places, [_broken(title) for title in STEPS.values()], fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("time without start-ups [ms]")
        size = f"{part.nodes.iloc[0]} nodes of {part.gpus_per_node.iloc[0]} GPUs"
        axes.set_title(f"{size}, density {density:g}, simulated", loc="left")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(COLUMNS))
    return figure, frame


def _broken(title: str) -> str:
    """On three lines."""
    words, _, equation = title.partition(" (")
    first, _, second = words.partition(" of k values, " if " of k values, " in words else " ")
    return f"{first}\n{second}\n({equation}"
