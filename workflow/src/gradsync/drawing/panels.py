"""Parts that figures share: words on what is missing, legends of what is drawn, an axis of nodes, labels."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import ScalarFormatter

CHARACTERS = 17  # of a caption per inch


def say(axes: Axes, text: str) -> None:
    """Words in the place of a drawing, for a figure that has nothing at all to show."""
    axes.text(0.5, 0.5, textwrap.fill(text, 60), ha="center", va="center", transform=axes.transAxes, fontsize=8)
    axes.set_axis_off()


def left_out(figure: Figure, reasons: Iterable[str]) -> None:
    """A caption below the figure and its legend with the reasons for missing panels; none without a reason."""
    listed = list(dict.fromkeys(reasons))
    if listed:
        caption(figure, f"Left out: {'; '.join(listed)}.")


def caption(figure: Figure, words: str) -> None:
    """Words below the figure and its legend."""
    text = textwrap.fill(words, int(CHARACTERS * figure.get_figwidth()))
    # below everything: the saved figure is as large as what is drawn, and legends stay below the panels
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for each in figure.legends:
        each.set_bbox_to_anchor((0, 0, 1, 1), transform=figure.transFigure)
    figure.text(0.01, -0.02, text, ha="left", va="top", fontsize=7.5)


def legend(figure: Figure, ncols: int, loc: Any = "outside lower center") -> None:
    """A legend of everything that has a label and is visible in some panel, each label once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            if name not in handles and _seen(handle):
                handles[name] = handle
    if handles:
        figure.legend(list(handles.values()), list(handles), loc=loc, ncols=ncols)


def _seen(handle: Any) -> bool:
    """Whether any part of a handle has a place: what is not known is NaN."""
    if isinstance(handle, Line2D):
        return bool(np.isfinite(np.asarray(handle.get_xydata(), float)).all(axis=1).any())
    if isinstance(handle, ErrorbarContainer):
        line, _, bars = handle.lines
        if line is not None:
            return _seen(line)
        return any(np.isfinite(segment).all() and len(segment) for bar in bars for segment in bar.get_segments())
    if isinstance(handle, BarContainer):
        return any(np.isfinite([bar.get_width(), bar.get_height()]).all() for bar in handle.patches)
    return True


def nodes_axis(axes: Axes, nodes: Collection[float]) -> None:
    """An x axis of numbers of nodes, on which doubling is an even distance."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(nodes))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("nodes")
