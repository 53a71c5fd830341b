"""Fig. 4 and 5 of the ASC-WFBP paper: one all-reduce and two contending ones, by its constants and as measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.files.results import TIMED
from gradsync.papers.ascwfbp.communication import FIG4A, FIG4B, FIG5, POINTS
from gradsync.papers.table import file, read

COLUMNS = 3  # panels side by side
MEASURED: dict[str, Any] = {"linestyle": "", "marker": "o"}


def fig4a(settings: Settings, results: Path) -> Drawn:
    """Time of one all-reduce against its size, and the line through it; a panel per source."""
    points, lines = _points(results), read(file(results, "ascwfbp", "fig4a"), FIG4A).set_index("source")
    figure, grid = _panels(points, 3.6)
    for axes, (source, part) in zip(grid, _sources(points), strict=True):
        if part.rung.iloc[0] in TIMED:
            axes.plot(part.bytes, 1e3 * part.one_seconds, color="C0", label="measured", **MEASURED)
        axes.plot(part.bytes, 1e3 * part.line_seconds, color="C1", label="a + b m")
        fit: Any = lines.loc[source]
        fitted = f"a = {1e3 * fit.a_seconds:.3g} ms, b = {1e9 * fit.b_seconds_per_byte:.3g} ns/B"
        share = "" if pd.isna(fit.r_squared) else f", R^2 = {fit.r_squared:.3f}"
        axes.set_title(f"{_title(part)}\n{fitted}{share}", loc="left")
        axes.set_ylabel("time of an all-reduce [ms]")
        _sizes(axes)
    return figure, points


def fig4b(settings: Settings, results: Path) -> Drawn:
    """Throughput of one all-reduce and of two contending ones; what lies beyond the link is shaded."""
    points, summed = _points(results), read(file(results, "ascwfbp", "fig4b"), FIG4B).set_index("source")
    figure, grid = _panels(points, 3.6)
    for axes, (source, part) in zip(grid, _sources(points), strict=True):
        style: dict[str, Any] = {"marker": "o"} if part.rung.iloc[0] in TIMED else {}
        for number, (column, label) in enumerate((("throughput_one", "one"), ("throughput_two", "two at once"))):
            axes.plot(part.bytes, 8e-9 * part[column], color=f"C{number}", label=label, **style)
        link = 8e-9 * part.link_bytes_per_second.iloc[0]
        if not np.isnan(link):
            axes.axhline(
                link, color="black", linestyle="--", linewidth=1.0, label="the link (each byte crosses it twice)"
            )
            beyond = 8e-9 * part.throughput_two
            axes.fill_between(part.bytes, link, beyond, where=beyond > link, color="C1", alpha=0.25, linewidth=0)
        gains: Any = summed.loc[source]
        gamma = "" if pd.isna(gains.gamma) else f"gamma = {gains.gamma:.2f}"
        size = gains.exceeds_link_from_bytes / 1e6
        where = "" if pd.isna(size) else f", beyond the link from {size:.2f} MB"
        axes.set_title(f"{_title(part)}\n{gamma}{where}", loc="left")
        axes.set_ylabel("all-reduced [Gbit/s]")
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # room for the legend
        _sizes(axes)
    return figure, points


def fig5(settings: Settings, results: Path) -> Drawn:
    """Time of two contending all-reduces: measured, by a + gamma b m, by the capacity of the link."""
    points, error_table = _points(results), read(file(results, "ascwfbp", "fig5"), FIG5).set_index("source")
    figure, grid = _panels(points, 3.6)
    for axes, (source, part) in zip(grid, _sources(points), strict=True):
        timed = part.rung.iloc[0] in TIMED
        if timed:
            axes.plot(part.bytes, 1e3 * part.two_seconds, color="C0", label="measured, two at once", **MEASURED)
        axes.plot(part.bytes, 1e3 * part.predicted_seconds, color="C1", label="a + gamma b m")
        label = "by the capacity of the link" if timed else "no faster than the link"
        axes.plot(part.bytes, 1e3 * part.capacity_seconds, "--", color="C2", label=label)
        errors: Any = error_table.loc[source]
        share = "only drawn in the paper" if pd.isna(errors.mean_error) else f"mean error {errors.mean_error:.0%}"
        axes.set_title(f"{_title(part)}\ngamma = {errors.gamma:.2f}, {share}", loc="left")
        axes.set_ylabel("time of each of two [ms]")
        _sizes(axes)
    return figure, points


def _points(results: Path) -> pd.DataFrame:
    return read(file(results, "ascwfbp", "contention_points"), POINTS)


def _sources(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for source, part in points.groupby("source", sort=False):
        yield str(source), part.sort_values("bytes")


def _panels(points: pd.DataFrame, height: float) -> tuple[plt.Figure, list[Axes]]:
    count = points.source.nunique()
    columns = min(count, COLUMNS)
    lines = -(-count // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(4.6 * columns, height * lines), squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def _title(part: pd.DataFrame) -> str:
    row = part.iloc[0]
    if row.rung not in TIMED:
        return f"{row.nodes:.0f} nodes, {row.source}"
    return f"{row.rung}: {row.source}" + (f", {row.nodes:.0f} ranks" if row.rung == "measured" else "")


def _sizes(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("message [B]")
    axes.legend(loc="upper left")
