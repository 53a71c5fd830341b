"""Fig. 5 to 8 of the MG-WFBP paper, its evaluation: schemes differ by colour, rungs by mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from gradsync.configuration.settings import Settings
from gradsync.drawing import panels
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.mgwfbp import allreduce_times, convergence, gradient_sizes, simulated_testbed, speedups
from gradsync.papers.table import file, read

SHOWN = ("wfbp", "single", "mgwfbp", "optimal", "tf_ps")
SHORT = {"wfbp": "WF.", "single": "S.E.", "mgwfbp": "M.W."}  # the paper's own, in Fig. 8
TRIANGLE: dict[str, Any] = {
    **{"marker": "^", "linestyle": "", "markersize": 8, "zorder": 5},
    **{"markeredgecolor": "black", "markeredgewidth": 0.7},
}
COMPUTATION, COMMUNICATION, WAITING = "#0072B2", "#D55E00", "#F2C9A9"


def _table(results: Path, name: str, columns: list[str]) -> pd.DataFrame:
    return read(file(results, "mgwfbp", name), columns)


def fig5a(settings: Settings, results: Path) -> tuple[Figure, pd.DataFrame]:
    """How many gradient tensors there are of each size, a panel per model; the paper's range is shaded."""
    tensors = _table(results, "fig5a_tensors", ["model", "tensor", "parameters"])
    shares = _table(results, "fig5a", ["model", "share_in_range"]).set_index("model").share_in_range
    models = list(tensors.groupby("model", sort=False))
    figure, grid = plt.subplots(len(models), 1, figsize=(5.2, 0.6 + 1.6 * len(models)), sharex=True, squeeze=False)
    bins = np.logspace(0, 8, 33)  # a quarter of a decade each
    low, high = gradient_sizes.IN_RANGE
    for axes, (model, part) in zip(grid[:, 0], models, strict=True):
        axes.axvspan(low, high, color="#999999", alpha=0.15, linewidth=0)
        axes.hist(part.parameters, bins=bins, color=COMPUTATION)
        axes.set_xscale("log")
        axes.set_ylabel("tensors")
        axes.set_title(
            f"{MODELS[str(model)]}, from the model's definition: {len(part)} gradient tensors, "
            f"{shares[model]:.0%} in the shade",
            loc="left",
            fontsize=8.5,
        )
    grid[-1, 0].set_xlabel(f"parameters of a gradient tensor (shade: {low:g} to {high:g}, the paper's range)")
    grid[-1, 0].set_xlim(1, 1e8)
    return figure, tensors


def fig5b(settings: Settings, results: Path) -> tuple[Figure, pd.DataFrame]:
    """Seconds of an all-reduce against bytes: those of this machine on the left, the authors' logs on the right."""
    points = _table(results, "fig5b_points", allreduce_times.POINTS)
    fits = _table(results, "fig5b", allreduce_times.FITS)
    titles = {
        "measured": "measured: ranks on this machine, loopback",
        "published": "published: the authors' logs, 10 GbE",
    }
    known = {rung: points[points.rung == rung] for rung in titles if rung in set(points.rung)}
    figure, grid = plt.subplots(1, len(known), figsize=(4.5 * len(known), 4.0), sharex=True, sharey=True, squeeze=False)
    for axes, (rung, part) in zip(grid[0], known.items(), strict=True):
        _times(axes, part)
        axes.set_title(titles[rung], loc="left")
        axes.tick_params(labelleft=True)
    grid[0, 0].set_ylabel("time of an all-reduce [s]")
    if "published" not in known:
        why = fits.note[fits.source == allreduce_times.LAYER_LOG].iloc[0]
        panels.left_out(figure, [f"the authors' logs: {why}"])
    marks = [
        Line2D([], [], color="black", linestyle="-", label="fit by pieces"),
        Line2D([], [], color="black", linestyle=":", label="one line, least squares"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2)
    return figure, points


def _times(axes: Axes, points: pd.DataFrame) -> None:
    for (source, nodes), part in points.groupby(["source", "nodes"], sort=False):
        name = f"{nodes} ranks" if source == allreduce_times.THIS_MACHINE else f"{nodes} nodes, {source}"
        shared = part.note.iloc[0]
        part = part.sort_values("bytes")
        errors = None
        if part.seconds_low.notna().all():
            errors = np.array([part.seconds - part.seconds_low, part.seconds_high - part.seconds])
        bars = axes.errorbar(
            part.bytes,
            part.seconds,
            yerr=errors,
            fmt="o",
            markersize=3,
            linewidth=0.8,
            alpha=0.5 if len(part) < 100 else 0.25,
            label=name + (f" ({shared.split(':')[0].split(' ranks ')[-1]})" if shared else ""),
        )
        colour = bars.lines[0].get_color()
        axes.plot(part.bytes, part.pieces_seconds, "-", color=colour, linewidth=1.2)
        positive = part[part.line_seconds > 0]
        axes.plot(positive.bytes, positive.line_seconds, ":", color=colour, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("message [B]")
    axes.legend(loc="upper left")


def _known(frame: pd.DataFrame, rung: str, scheme: str) -> pd.DataFrame:
    """The rows of a rung and scheme that have a value."""
    return frame[(frame.rung == rung) & (frame.scheme == scheme) & frame.speedup.notna()]


def _speedup_panel(axes: Axes, frame: pd.DataFrame, settings: Settings) -> None:
    """Speed-up against nodes: simulated as a line with its band, published as crosses, measured with intervals."""
    offsets = np.linspace(0.96, 1.04, len(SHOWN))  # marks that coincide are drawn side by side
    for number, (scheme, offset) in enumerate(zip(SHOWN, offsets, strict=True)):
        colour = f"C{number}"
        simulated = _known(frame, "simulated", scheme)
        middle = simulated[simulated.assumption.isin(simulated_testbed.CENTRES)]
        band = simulated.groupby("nodes").speedup.agg(["min", "max"])
        axes.plot(middle.nodes, middle.speedup, "--" if scheme == "optimal" else "-", color=colour)
        axes.fill_between(band.index, band["min"], band["max"], color=colour, alpha=0.12, linewidth=0)
        published = _known(frame, "published", scheme)
        axes.plot(published.nodes * offset, published.speedup, "x", color=colour, markersize=7, markeredgewidth=1.8)
        measured = _known(frame, "measured", scheme)
        low, high = measured.speedup - measured.speedup_low, measured.speedup_high - measured.speedup
        axes.errorbar(
            measured.nodes * offset, measured.speedup, yerr=np.array([low, high]), fmt="o", capsize=3, color=colour
        )
        emulated = _known(frame, "emulated", scheme)
        axes.plot(emulated.nodes * offset, emulated.speedup, color=colour, **TRIANGLE)
    stock = _known(frame, "emulated", "ddp")
    axes.plot(stock.nodes, stock.speedup, color="white", **TRIANGLE)
    nodes = np.unique(frame.nodes)
    axes.plot(nodes, nodes, color="black", linewidth=0.8, linestyle=":")
    panels.nodes_axis(axes, nodes)
    axes.set_yscale("log", base=2)
    axes.set_yticks(nodes)
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_ylabel("speed-up over one node (measured: one rank)")
    axes.legend(handles=_handles(frame, settings), fontsize=7, loc="lower right")


def _handles(frame: pd.DataFrame, settings: Settings) -> list[Artist]:
    """Legend of the schemes and rungs that have a value."""
    known = frame[frame.speedup.notna()]
    shown = set(known.scheme[known.scheme.isin(SHOWN)])
    rungs = set(known.rung[known.scheme.isin(SHOWN)])
    handles: list[Artist] = [
        Patch(color=f"C{i}", label=labels(settings)(scheme)) for i, scheme in enumerate(SHOWN) if scheme in shown
    ]
    marks: dict[str, dict[str, Any]] = {
        "published": {"marker": "x", "linestyle": "", "markersize": 7, "label": "published (authors' script)"},
        "simulated": {"label": "simulated; shade: band"},
        "measured": {"marker": "o", "linestyle": "", "label": "measured here, 95 %"},
    }
    handles += [Line2D([], [], color="black", **mark) for rung, mark in marks.items() if rung in rungs]
    handles.append(Line2D([], [], color="black", linestyle=":", label="linear"))
    if "emulated" in rungs:
        handles.append(Line2D([], [], label="emulated here", color="#bbbbbb", **TRIANGLE))
    if not _known(frame, "emulated", "ddp").empty:
        handles.append(Line2D([], [], label="PyTorch DDP, emulated", color="white", **TRIANGLE))
    return handles


def _speedup_figure(name: str, title: str, settings: Settings, results: Path) -> tuple[Figure, pd.DataFrame]:
    """Speed-up, and on the right accuracy by epoch if runs of this machine have whole epochs."""
    frame = _table(results, name, speedups.COLUMNS)
    accuracy = _table(results, f"{name}b", convergence.COLUMNS)
    model = MODELS[frame.model.iloc[0]]
    panel_count = 1 if accuracy.empty else 2
    figure, grid = plt.subplots(1, panel_count, figsize=(4.5 * panel_count, 4.2), squeeze=False)
    left, right = grid[0, 0], grid[0, -1]
    _speedup_panel(left, frame, settings)
    centre = [point for point in simulated_testbed.CENTRES if point in set(frame.assumption)]
    left.set_title("\n".join([f"{title}(a) {model}", *(f"simulated line: {point}" for point in centre)]), loc="left")
    if accuracy.empty:
        panels.left_out(figure, [f"{title}(b), accuracy: no whole epoch of {model} in this configuration"])
        return figure, frame
    for number, (label, part) in enumerate(_curves(accuracy)):
        (line,) = right.plot(part.epoch, part.accuracy, "-o", color=f"C{number}", linewidth=1.0, label=label)
        right.fill_between(
            part.epoch, part.accuracy_least, part.accuracy_most, color=line.get_color(), alpha=0.1, linewidth=0
        )
    right.legend(fontsize=7, loc="lower right")
    right.set_xlabel("epoch")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylabel("test accuracy (mean and range over seeds)")
    right.set_ylim(0, 1)
    data = ", ".join(accuracy["data"].unique())
    right.set_title(f"{title}(b) measured here on {data},\nsmall images, not ImageNet", loc="left")
    return figure, frame


def _curves(accuracy: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Curves of accuracy with their labels; schemes whose curves coincide, as synchronous ones do, share one."""
    for nodes, of_nodes in accuracy.groupby("nodes"):
        alike: dict[bytes, list[str]] = {}
        parts: dict[bytes, pd.DataFrame] = {}
        for scheme, part in of_nodes.groupby("scheme", sort=False):
            key = part[["epoch", "accuracy", "accuracy_least", "accuracy_most"]].to_numpy(float).tobytes()
            alike.setdefault(key, []).append(str(scheme))
            parts.setdefault(key, part)
        for key, schemes in alike.items():
            ranked = sorted(schemes, key=lambda scheme: SHOWN.index(scheme) if scheme in SHOWN else len(SHOWN))
            label = ", ".join(ranked[:3]) + (f" and {len(ranked) - 3} more" if len(ranked) > 3 else "")
            yield f"{label}, {nodes} ranks" + (": these coincide" if len(ranked) > 1 else ""), parts[key]


def fig8(settings: Settings, results: Path) -> tuple[Figure, pd.DataFrame]:
    """Stacked bars of computation and exposed communication, a row per rung, a column per model."""
    frame = _table(results, "fig8", speedups.COLUMNS)
    known = frame[frame.exposed_communication_seconds.notna() & frame.scheme.isin(SHORT)]
    rungs = [rung for rung in ("published", "simulated", "emulated", "measured") if rung in set(known.rung)]
    models = list(dict.fromkeys(frame.model))
    figure, grid = plt.subplots(
        len(rungs), len(models), figsize=(4.3 * len(models), 0.7 + 2.2 * len(rungs)), squeeze=False
    )
    reasons: list[str] = []
    for line, rung in zip(grid, rungs, strict=True):
        for axes, model in zip(line, models, strict=True):
            part = known[(known.rung == rung) & (known.model == model)]
            reasons += _reasons(frame[(frame.rung == rung) & (frame.model == model)], part)
            if part.empty:
                axes.set_axis_off()
                continue
            _bars(axes, part, np.unique(part.nodes))
            axes.set_title(f"{MODELS[model]}, {rung}", loc="left")
    handles = [Patch(color=COMPUTATION, label="Comp. (forward and backward)")]
    if (known.busy_computation_seconds > known.computation_seconds).any():
        handles.append(Patch(color=COMPUTATION, alpha=0.4, label="slowed by messages on the same cores"))
    if (known.waiting_seconds > 0).any():
        handles.append(Patch(color=WAITING, label="waiting for other ranks"))
    band = "; whisker: band of assumptions" if known.duplicated(["rung", "model", "nodes", "scheme"]).any() else ""
    handles.append(Patch(color=COMMUNICATION, label=f"Comm. (exposed){band}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    panels.left_out(figure, reasons)
    return figure, frame


def _reasons(rows: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    """Why numbers of nodes that are not drawn have no value on a rung, for a model."""
    missing = rows[~rows.nodes.isin(drawn.nodes) & rows.exposed_communication_seconds.isna()]
    return [f"{rung}: {note}" for rung, note in zip(missing.rung, missing.note, strict=True) if note]


def _bars(axes: Axes, part: pd.DataFrame, nodes: np.ndarray) -> None:
    for place, n in enumerate(nodes):
        for number, (scheme, short) in enumerate(SHORT.items()):
            bar = part[(part.nodes == n) & (part.scheme == scheme)]
            if bar.empty:
                continue
            centre = bar[bar.assumption.isin(simulated_testbed.CENTRES)]
            row = (bar if centre.empty else centre).iloc[0]
            x = place + 0.27 * (number - 1)
            axes.bar(x, row.computation_seconds, 0.24, color=COMPUTATION)
            # interference: the computation itself takes longer
            slowed = max(0.0, np.nan_to_num(row.busy_computation_seconds - row.computation_seconds))
            axes.bar(x, slowed, 0.24, bottom=row.computation_seconds, color=COMPUTATION, alpha=0.4, linewidth=0)
            waiting = float(np.nan_to_num(row.waiting_seconds))
            axes.bar(x, waiting, 0.24, bottom=row.computation_seconds + slowed, color=WAITING, linewidth=0)
            exposed = bar.exposed_communication_seconds
            whisker = None
            if len(bar) > 1:
                middle = row.exposed_communication_seconds
                whisker = [[max(0.0, middle - exposed.min())], [max(0.0, exposed.max() - middle)]]
            axes.bar(
                x,
                row.exposed_communication_seconds,
                0.24,
                bottom=row.computation_seconds + slowed + waiting,
                color=COMMUNICATION,
                yerr=whisker,
                error_kw={"linewidth": 0.8, "capsize": 2},
            )
            top = row.computation_seconds + slowed + waiting + exposed.max()
            axes.text(x, top, f" {short}", ha="center", va="bottom", fontsize=6.5)
    axes.set_xticks(range(len(nodes)), [f"{n:g}" for n in nodes])
    axes.set_xlim(-0.6, len(nodes) - 0.4)
    axes.set_xlabel("nodes")
    axes.set_ylabel("seconds")
    axes.margins(y=0.12)


def speedup(name: str, title: str) -> Callable[[Settings, Path], tuple[Figure, pd.DataFrame]]:
    """Fig. 6 or 7."""
    return lambda settings, results: _speedup_figure(name, title, settings, results)
