"""Parts that figures share: what is missing said in words, an axis of nodes, labels of schemes."""

from __future__ import annotations

import textwrap
from collections.abc import Collection

from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from gradsync import schemes
from gradsync.settings import Settings


def say(axes: Axes, text: str) -> None:
    """Words where a drawing would be."""
    axes.text(0.5, 0.5, textwrap.fill(text, 60), ha="center", va="center", transform=axes.transAxes, fontsize=8)
    axes.set_axis_off()


def nodes_axis(axes: Axes, nodes: Collection[float]) -> None:
    """Numbers of nodes, doubling at even distances."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(nodes))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("nodes")


def label(scheme: str, settings: Settings) -> str:
    """What a scheme is called in figures."""
    known = schemes.load(settings.schemes)
    return known[scheme].label if scheme in known else scheme.replace("_", " ")
