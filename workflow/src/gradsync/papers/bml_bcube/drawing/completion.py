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
from gradsync.papers.bml_bcube.testbed import BML, EVEN, TENSORS, bench
from gradsync.papers.labels import MODELS
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
        emulated = frame[(frame.rung == "emulated") & frame.iteration_seconds.notna()]
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1.35, 1))
        _times(left, simulated, centre)
        _emulated(left, right, emulated, sorted(simulated.batch.unique()))
        _measured(left, measured, simulated.batch.nunique(), testbed.iterations)
        left.axhline(AXIS_TOP[model], color="black", linewidth=1.0, linestyle="--")
        left.set_ylabel(f"time of {testbed.iterations:g} iterations [s]")
        left.set_title(f"{title} {MODELS[model]}, simulated\nmark: {centre}", loc="left")
        _reductions(right, simulated, centre, PUBLISHED[model])
        right.set_title("reduction by BML, simulated\nshade: band of assumptions", loc="left")
        figure.legend(handles=_handles(measured, emulated), loc="outside lower center", ncols=3)
        if measured.empty:
            panels.left_out(figure, [f"measured: nothing of {MODELS[model]} in this configuration"])
        return figure, frame

    return draw


def _handles(measured: pd.DataFrame, emulated: pd.DataFrame) -> list[Line2D | Patch]:
    """The legend of the figure."""
    black: dict[str, Any] = {"color": "black"}
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="o", linestyle="", color=f"C{number}", label=label)
        for number, label in enumerate(SERIES.values())
    ]
    handles += [
        Line2D([], [], **black, label="whisker: band of assumptions"),
        Line2D([], [], **black, linestyle="--", label="top of the paper's axis, which no bar exceeds there"),
        Patch(color="#999999", alpha=0.3, label="range that the paper publishes"),
        Line2D([], [], **black, linestyle=":", label="50 %, the most that half the transfer time can save"),
    ]
    outline: dict[str, Any] = {"linestyle": "", "color": "white", "markeredgecolor": "black"}
    if not measured.empty:
        notes = [note for note in measured.note.iloc[0].split("; ") if note != completion.ONE_NETWORK][:1]
        models = ", ".join(MODELS[model] for model in measured.model.unique())
        why = "\n".join([f"measured here: {models}", "whisker: 95 %; undecidable:", *notes, "one network for all"])
        handles.append(Line2D([], [], marker="s", **outline, label=why))
    if not emulated.empty:
        handles.append(Line2D([], [], marker="^", **outline, label="emulated on this machine"))
    return handles


def _times(axes: Axes, simulated: pd.DataFrame, centre: str) -> None:
    """A mark for the centre of the band, with the band as its whisker: on a logarithmic axis bars have no length."""
    batches = sorted(simulated.batch.unique())
    for number, scheme in enumerate(SERIES):
        for place, batch in enumerate(batches):
            part = simulated[(simulated.scheme == scheme) & (simulated.batch == batch)]
            middle = part[part.assumption == centre].jct_seconds.iloc[0]
            whisker = [[middle - part.jct_seconds.min()], [part.jct_seconds.max() - middle]]
            axes.errorbar(place + WIDTH * (number - 1), middle, whisker, fmt="o", color=f"C{number}", capsize=3)
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


def _measured(axes: Axes, measured: pd.DataFrame, simulated_sizes: int, iterations: float) -> None:
    """Beside the simulated sizes, on their axis: the same number of iterations of this machine's own runs."""
    if measured.empty:
        return
    batches = sorted(measured.batch_here.unique())
    for number, scheme in enumerate(SERIES):
        part = measured[measured.scheme == scheme].set_index("batch_here")
        places = np.array([batches.index(batch) for batch in part.index]) + simulated_sizes + WIDTH * (number - 1)
        middle = iterations * part.iteration_seconds
        ends = [middle - iterations * part.iteration_seconds_low, iterations * part.iteration_seconds_high - middle]
        mark: dict[str, Any] = {"fmt": "s", "color": f"C{number}", "markerfacecolor": "white", "capsize": 3}
        axes.errorbar(places, middle, np.array(ends), **mark)
    axes.axvline(simulated_sizes - 0.5, color="black", linewidth=0.8)
    labels = [tick.get_text() for tick in axes.get_xticklabels()] + [f"{batch:g}\nhere" for batch in batches]
    axes.set_xticks(range(len(labels)), labels)


def _sizes(axes: Axes, batches: list[int]) -> None:
    axes.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
    axes.set_xlabel("sub-minibatch of a server")
    axes.grid(visible=False, axis="x")
