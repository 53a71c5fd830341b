"""Fig. 6 and 7 of the BML paper: job completion times by sub-minibatch, and how much earlier BML completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.drawing.style import Drawn
from gradsync.papers.bml_bcube import completion
from gradsync.papers.bml_bcube.completion import NAMES
from gradsync.papers.bml_bcube.testbed import BML, EVEN, TENSORS, bench
from gradsync.papers.table import file, read

SERIES = {EVEN: "PS, tensors split evenly", TENSORS: "PS, whole tensors", BML: "BML on BCube(3,2)"}
WIDTH = 0.26
AXIS_TOP = {"lenet5": 150, "vgg19": 4400}  # seconds, Fig. 6 and 7
PUBLISHED = {"lenet5": (18.7, 56.4), "vgg19": (29.2, 52.1)}  # percent, Section 4.3
REDUCTIONS = {
    "reduction_of_ps": (0, "over PS, tensors split evenly"),
    "reduction_of_tf_ps": (1, "over PS, whole tensors"),
}


def jobs(name: str, title: str, model: str) -> Callable[[Settings, Path], Drawn]:
    """The function that draws Fig. 6 or 7."""

    def draw(settings: Settings, results: Path) -> Drawn:
        frame = read(file(results, "bml_bcube", name), completion.COLUMNS)
        testbed = bench(settings, model)
        centre = str(testbed.centre())
        simulated = frame[frame.rung == "simulated"]
        measured = frame[(frame.rung == "measured") & frame.iteration_seconds.notna()]
        count = 2 if measured.empty else 3
        figure, (left, middle, *right) = plt.subplots(1, count, figsize=(12.5 / 3 * count, 4.3))
        _times(left, simulated, centre)
        emulated = frame[(frame.rung == "emulated") & frame.iteration_seconds.notna()]
        _emulated(left, middle, emulated, sorted(simulated.batch.unique()))
        left.axhline(AXIS_TOP[model], color="black", linewidth=1.0, linestyle="--")
        left.set_ylabel(f"time of {testbed.iterations:g} iterations [s]")
        left.set_title(f"{title} {NAMES[model]}, simulated\nbar: {centre}", loc="left")
        _reductions(middle, simulated, centre, PUBLISHED[model])
        middle.set_title("reduction by BML, simulated\nshade: band of assumptions", loc="left")
        for axes in right:
            _measured(axes, measured)
        handles: list[Patch | Line2D] = [Patch(color=f"C{i}", label=label) for i, label in enumerate(SERIES.values())]
        handles += [
            Line2D(
                [],
                [],
                color="black",
                marker="_",
                label=f"whisker: band of assumptions{' (right: 95 %)' if right else ''}",
            ),
            Line2D([], [], color="black", linestyle="--", label="top of the paper's axis, which no bar exceeds there"),
            Patch(color="#999999", alpha=0.3, label="range that the paper publishes"),
            Line2D([], [], color="black", linestyle=":", label="50 %, the most that half the transfer time can save"),
        ]
        if not emulated.empty:
            mark: dict[str, Any] = {"marker": "^", "linestyle": "", "color": "white", "markeredgecolor": "black"}
            handles.append(Line2D([], [], label="emulated on this machine", **mark))
        figure.legend(handles=handles, loc="outside lower center", ncols=4 if right else 3)
        if not right:
            panels.left_out(figure, [f"measured: nothing of {NAMES[model]} in this configuration"])
        return figure, frame

    return draw


def _times(axes: Axes, simulated: pd.DataFrame, centre: str) -> None:
    batches = sorted(simulated.batch.unique())
    for number, scheme in enumerate(SERIES):
        for place, batch in enumerate(batches):
            part = simulated[(simulated.scheme == scheme) & (simulated.batch == batch)]
            middle = part[part.assumption == centre].jct_seconds.iloc[0]
            whisker = [[middle - part.jct_seconds.min()], [part.jct_seconds.max() - middle]]
            axes.bar(place + WIDTH * (number - 1), middle, 0.9 * WIDTH, color=f"C{number}", yerr=whisker, capsize=2)
    axes.set_yscale("log")
    _sizes(axes, batches)


def _emulated(times: Axes, reductions: Axes, emulated: pd.DataFrame, batches: list[int]) -> None:
    for number, scheme in enumerate(SERIES):
        part = emulated[emulated.scheme == scheme]
        places = [batches.index(batch) + WIDTH * (number - 1) for batch in part.batch]
        times.plot(places, part.jct_seconds, "^", color="white", markeredgecolor=f"C{number}", zorder=5)
    bml = emulated[emulated.scheme == BML]
    for column, (number, _) in REDUCTIONS.items():
        places = [batches.index(batch) for batch in bml.batch]
        reductions.plot(places, 100 * bml[column], "^", color="white", markeredgecolor=f"C{number}", zorder=5)


def _reductions(axes: Axes, simulated: pd.DataFrame, centre: str, published: tuple[float, float]) -> None:
    bml = simulated[simulated.scheme == BML]
    batches = sorted(bml.batch.unique())
    axes.axhspan(*published, color="#999999", alpha=0.2, linewidth=0)
    axes.axhline(50, color="black", linewidth=0.8, linestyle=":")
    for column, (number, label) in REDUCTIONS.items():
        middle = bml[bml.assumption == centre].set_index("batch")[column].loc[batches]
        band = bml.groupby("batch")[column].agg(["min", "max"]).loc[batches]
        places = np.arange(len(batches))
        axes.plot(places, 100 * middle, "-o", color=f"C{number}", label=label)
        axes.fill_between(places, 100 * band["min"], 100 * band["max"], color=f"C{number}", alpha=0.1, linewidth=0)
        for edge in ("min", "max"):  # bands overlap: their edges show which is which
            axes.plot(places, 100 * band[edge], "--", color=f"C{number}", linewidth=0.9)
    axes.set_ylabel("reduction of the job completion time [%]")
    axes.set_ylim(-10, 100)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 0.02), frameon=True, facecolor="white", framealpha=0.9, edgecolor="none"
    )
    _sizes(axes, batches)


def _measured(axes: Axes, measured: pd.DataFrame) -> None:
    batches = sorted(measured.batch_here.unique())
    for number, scheme in enumerate(SERIES):
        part = measured[measured.scheme == scheme].set_index("batch_here")
        places = np.array([batches.index(batch) for batch in part.index]) + WIDTH * (number - 1)
        ends = [
            part.iteration_seconds - part.iteration_seconds_low,
            part.iteration_seconds_high - part.iteration_seconds,
        ]
        axes.bar(
            places, 1e3 * part.iteration_seconds, 0.9 * WIDTH, color=f"C{number}", yerr=1e3 * np.array(ends), capsize=2
        )
    axes.set_ylabel("iteration [ms]")
    names = ", ".join(NAMES[model] for model in measured.model.unique())
    notes = [note for note in measured.note.iloc[0].split("; ") if note != completion.ONE_NETWORK][:1]
    why = ", ".join([*notes, "one network for all: undecidable"])
    axes.set_title(f"measured here: {names}\n{why}", loc="left", fontsize=8.5)
    _sizes(axes, batches)


def _sizes(axes: Axes, batches: list[int]) -> None:
    axes.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
    axes.set_xlabel("sub-minibatch of a server")
    axes.grid(visible=False, axis="x")
