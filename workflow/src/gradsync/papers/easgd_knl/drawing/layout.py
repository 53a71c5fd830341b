"""Fig. 10: the exchange with one packed message and with one a tensor, a panel per model; the band as whiskers.

Simulated as bars, emulated as marks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.layout import LAYOUTS, WORKERS
from gradsync.papers.easgd_knl.networks import NETWORKS, SENT
from gradsync.papers.labels import MODELS
from gradsync.papers.table import BY_SCHEME, file, read

WIDTH = 0.36
EMULATED = "emulated, by the backend's all-reduce"


def fig10(settings: Settings, results: Path) -> Drawn:
    """Bars at the middle of the band by network and layout."""
    frame = read(file(results, "easgd_knl", "fig10"), [*BY_SCHEME, "network", "exchange_seconds"])
    simulated = frame[frame.rung == "simulated"]
    figure, grid = plt.subplots(1, len(SENT), figsize=(5.2 * len(SENT), 3.8))
    for axes, model in zip(grid, SENT, strict=True):
        for number, (scheme, name) in enumerate(LAYOUTS.items()):
            part = simulated[(simulated.model == model) & (simulated.scheme == scheme)]
            exchange = (
                1e3 * part.exchange_seconds.groupby(part.network).agg(["first", "min", "max"]).loc[list(NETWORKS)]
            )
            middle = exchange["first"]  # the first point of a band is its middle
            places = np.arange(len(NETWORKS)) + WIDTH * (number - 0.5)
            ends = [middle - exchange["min"], exchange["max"] - middle]
            look = {"color": f"C{number}", "label": f"{name}, simulated by a tree"}
            axes.bar(places, middle, 0.92 * WIDTH, yerr=ends, error_kw={"linewidth": 0.8}, **look)
            emulated = frame[(frame.rung == "emulated") & (frame.model == model) & (frame.scheme == scheme)]
            for _, row in emulated[emulated.exchange_seconds.notna()].iterrows():
                place = list(NETWORKS).index(row.network) + WIDTH * (number - 0.5)
                axes.plot(place, 1e3 * row.exchange_seconds, "D", color="black", markersize=5, label=EMULATED)
        axes.set_xticks(range(len(NETWORKS)), [name.replace(", ", "\n") for name in NETWORKS.values()])
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("exchange [ms]")
        axes.set_title(f"Fig. 10, {MODELS[model]}, {WORKERS} workers", loc="left")
    legend = {name: handle for axes in grid for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=len(legend))
    return figure, frame
