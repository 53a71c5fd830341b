"""Fig. 4 of the BML paper: servers, switches and the links in use, a panel per state."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.bml_bcube import states
from gradsync.papers.table import file, read

THREADS = ("#0072B2", "#D55E00")
IDLE = "#999999"
ABOVE, BELOW = 1.0, -1.0  # height of the switches of level 1 and level 0, the servers being at 0
WIDE, HIGH = 0.92, 0.72  # a server
COLUMNS = ["state", "server", "thread_0", "thread_1", "as_printed"]


def fig4(settings: Settings, results: Path) -> Drawn:
    """Five panels; the pieces of a server are coloured by thread, and so are the links that they came over."""
    held = read(file(results, "bml_bcube", "fig4"), COLUMNS)
    steps = read(file(results, "bml_bcube", "fig4_steps"), ["stage", "t_c", "thread_0_level", "thread_1_level"])
    used = dict(zip(states.STEPS, steps.to_dict("records"), strict=False))
    figure, grid = plt.subplots(len(states.STATES), 1, figsize=(10.5, 11.5))
    for axes, (label, name) in zip(grid, states.STATES.items(), strict=True):
        part = held[held.state == label].set_index("server")
        _panel(axes, part, used.get(label))
        title = f"({label}) {name}"
        if label in used:
            title += f": {used[label]['t_c']:g} $T_C$"
        printed = "as printed" if part.as_printed.all() else f"{int((part.as_printed == 0).sum())} servers differ"
        axes.set_title(f"{title}; {len(part)} servers, {printed}", loc="left")
    handles = [Line2D([], [], color=colour, linewidth=2, label=f"thread {i}") for i, colour in enumerate(THREADS)]
    handles.append(Line2D([], [], color=IDLE, linewidth=0.7, label="link not used in this step"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    total = steps[steps.stage == "together"].t_c.iloc[0]
    figure.suptitle(
        f"BML in BCube(3,2), from the symbolic check: pieces <e,v1,v0>([servers in the sum]); {total:g} $T_C$ together",
        fontsize=10,
    )
    return figure, held


def _panel(axes: Axes, held: pd.DataFrame, used: dict[Hashable, Any] | None) -> None:
    n = states.N
    for place, (server, row) in enumerate(held.iterrows()):
        for level in range(states.K):
            thread = next((t for t in range(states.K) if used and used[f"thread_{t}_level"] == level), None)
            colour, width = (IDLE, 0.7) if thread is None else (THREADS[thread], 1.8)
            x, y, edge = (
                (n * (place // n) + 1, BELOW, -HIGH / 2) if level == 0 else (n * (place % n) + 1, ABOVE, HIGH / 2)
            )
            axes.plot([place, x], [edge, y], color=colour, linewidth=width, zorder=1)
        box = FancyBboxPatch((place - WIDE / 2, -HIGH / 2), WIDE, HIGH, boxstyle="round,pad=0,rounding_size=0.05")
        box.set(facecolor="white", edgecolor="black", linewidth=0.8, zorder=2)
        axes.add_patch(box)
        axes.text(place, 0.22, f"{server}", ha="center", va="center", fontsize=7, weight="bold", zorder=3)
        for thread, colour in enumerate(THREADS):
            text = row[f"thread_{thread}"]
            axes.text(place, -0.02 - 0.2 * thread, text, ha="center", va="center", fontsize=7, color=colour, zorder=3)
    for switch in range(n):
        for level, y in ((0, BELOW), (1, ABOVE)):
            box = FancyBboxPatch((n * switch + 0.6, y - 0.13), 0.8, 0.26, boxstyle="square,pad=0")
            box.set(facecolor="#E6E6E6", edgecolor="black", linewidth=0.8, zorder=2)
            axes.add_patch(box)
            axes.text(n * switch + 1, y, f"level {level}", ha="center", va="center", fontsize=6.5, zorder=3)
    axes.set_xlim(-0.6, n**states.K - 0.4)
    axes.set_ylim(BELOW - 0.2, ABOVE + 0.2)
    axes.set_axis_off()
