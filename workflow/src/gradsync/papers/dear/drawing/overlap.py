"""Iterations over computation alone, a panel per network: bars from 1, the band of assumptions as whiskers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.ascwfbp.testbed import MODELS
from gradsync.papers.dear.overlap import BACKWARD_ALONE, BESIDE, NETWORKS
from gradsync.papers.labels import labels
from gradsync.papers.table import file, read

SHOWN = (*BACKWARD_ALONE[1:], *BESIDE)  # WFBP is off the scale


def overlap(settings: Settings, results: Path) -> Drawn:
    """Bars by model and scheme."""
    frame = read(file(results, "dear", "overlap"))
    frame["over"] = frame.iteration_seconds / frame.computation_seconds
    figure, grid = plt.subplots(1, len(NETWORKS), figsize=(5.6 * len(NETWORKS), 3.9), squeeze=False)
    width = 0.8 / len(SHOWN)
    for axes, (network, title) in zip(grid[0], NETWORKS.items(), strict=True):
        for number, scheme in enumerate(SHOWN):
            part = frame[(frame.network == network) & (frame.scheme == scheme)]
            band = part.groupby("model").over.agg(["min", "max"]).reindex(list(MODELS))
            middle = (band["min"] + band["max"]) / 2
            axes.bar(
                np.arange(len(MODELS)) + (number - (len(SHOWN) - 1) / 2) * width,
                middle - 1,
                width,
                bottom=1,
                yerr=(band["max"] - band["min"]) / 2,
                error_kw={"linewidth": 0.8},
                label=labels(settings)(scheme),
            )
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xticks(np.arange(len(MODELS)), list(MODELS.values()))
        axes.set_ylabel("iteration / computation alone")
        axes.set_title(f"64 GPUs, {title}, simulated\nwhiskers: band of start-ups and rates", loc="left")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(SHOWN))
    return figure, frame
