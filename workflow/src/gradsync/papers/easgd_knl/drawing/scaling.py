"""Table 4: weak scaling efficiency by nodes, as published and simulated by rate and exchange, a panel per model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.testbed import SCALED, bench
from gradsync.papers.labels import MODELS
from gradsync.papers.table import file, read

CAFFE_NODES = 32


def table4(settings: Settings, results: Path) -> Drawn:
    """Published efficiencies as points; those of each rate with an exposed exchange as shades over the band."""
    frame = read(file(results, "easgd_knl", "table4"), ["rung", "model", "nodes", "assumption", "efficiency"])
    testbed = bench(settings)
    figure, grid = plt.subplots(1, len(SCALED), figsize=(5.2 * len(SCALED), 3.9), sharey=True)
    for axes, model in zip(grid, SCALED, strict=True):
        of_model = frame[frame.model == model]
        published = of_model[of_model.rung == "published"]
        axes.plot(published.nodes, published.efficiency, "ko", label="published")
        axes.plot(
            CAFFE_NODES, testbed.number("intel_caffe_efficiency", "value", model), "kx", label="published, Intel Caffe"
        )
        for number, (name, part) in enumerate(_by_rate(of_model)):
            ends = part.groupby("nodes").efficiency.agg(["first", "min", "max"])
            axes.plot(ends.index, ends["first"], color=f"C{number}", label=f"simulated, rate {name}")
            axes.fill_between(ends.index, ends["min"], ends["max"], color=f"C{number}", alpha=0.2, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(published.nodes, [f"{nodes:.0f}" for nodes in published.nodes])
        axes.set_xlabel("KNL nodes of 68 cores")
        axes.set_ylabel("weak scaling efficiency")
        axes.tick_params(labelleft=True)
        axes.set_title(f"Table 4, {MODELS[model]}: exchange in sequence\n(hidden behind computation: 1)", loc="left")
    handles, names = grid[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure, frame


def _by_rate(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each rate with an exposed exchange."""
    exposed = frame[frame.assumption.str.contains("exchange exposed")]
    rates = exposed.assumption.map(lambda name: name.partition(", ")[0].removeprefix("rate "))
    return [(str(rate), part) for rate, part in exposed.groupby(rates, sort=False)]
