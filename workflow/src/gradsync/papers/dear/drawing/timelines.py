"""Two turns of each scheme below one another on one axis, a row per lane: where the halves of all-reduces go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.drawing.timeline import COLOURS, KIND
from gradsync.papers.ascwfbp.testbed import MODELS
from gradsync.papers.dear import timelines as simulated
from gradsync.papers.dear.overlap import NETWORKS
from gradsync.papers.labels import labels
from gradsync.plan import COMPUTE, Collective

OF_KIND = {  # of collectives; gathers stand out
    "all_reduce": ("all-reduce", COLOURS["message"]),
    "reduce_scatter": ("reduce-scatter", "#E69F00"),
    "all_gather": ("all-gather", "#009E73"),
}
TOUCHING = 1e-9  # seconds


class Block(NamedTuple):
    """Operations of one kind that follow one another without a gap; messages stay apart."""

    row: str
    kind: str
    start: float
    end: float


def timelines(settings: Settings, results: Path) -> Drawn:
    """A panel per scheme; the bytes of a scheme's messages are those of its gradients, and as many to gather."""
    every = list(simulated.traces(settings, results))
    figure, grid = plt.subplots(len(every), 1, figsize=(9.5, 1.05 * len(every) + 1.2), sharex=True)
    frames, shown = [], dict[str, str]()
    for axes, drawn in zip(grid, every, strict=True):
        blocks = list(_blocks(drawn))
        shown |= _panel(axes, blocks, drawn.window)
        seconds = (drawn.window[1] - drawn.window[0]) / simulated.TURNS
        messages = len(drawn.plan.messages())
        axes.set_title(f"{labels(settings)(drawn.scheme)}: {seconds:.3f} s a turn, {messages} messages", loc="left")
        frames.append(pd.DataFrame(blocks).assign(scheme=drawn.scheme, turn_seconds=seconds))
    grid[-1].set_xlim(0, max(drawn.window[1] - drawn.window[0] for drawn in every))
    grid[-1].set_xlabel("time [s]")
    model, network = MODELS[simulated.MODEL], NETWORKS[simulated.NETWORK]
    figure.suptitle(f"{model} on 64 GPUs, {network}, simulated: two turns, each from the beginning of its forward")
    patches = [Patch(color=colour, label=name) for name, colour in shown.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return figure, pd.concat(frames, ignore_index=True)


def _blocks(drawn: simulated.Drawn) -> Iterator[Block]:
    """What is inside the window, from its beginning on."""
    kinds = {op.name: OF_KIND[op.kind][0] for op in drawn.plan.roles[0].flat if isinstance(op, Collective)}
    first, last = drawn.window
    open_blocks: dict[str, Block] = {}
    for span in drawn.spans:
        start, end = max(span.start, first) - first, min(span.end, last) - first
        if end - start <= TOUCHING:
            continue
        computes = span.lane == COMPUTE
        block = Block("compute" if computes else "network", kinds.get(span.operation) or KIND[span.verb], start, end)
        before = open_blocks.get(block.row)
        if computes and before and before.kind == block.kind and start - before.end <= TOUCHING:
            open_blocks[block.row] = before._replace(end=end)
            continue
        if before:
            yield before
        open_blocks[block.row] = block
    yield from open_blocks.values()


def _panel(axes: Axes, blocks: list[Block], window: tuple[float, float]) -> dict[str, str]:
    """Draw blocks, and lines where turns begin; the kinds with their colours."""
    colours = {**COLOURS, **dict(OF_KIND.values())}
    rows = ("network", "compute")
    for block in blocks:
        width = block.end - block.start
        edge = min(0.5, 200 * width / (window[1] - window[0]))  # short messages are not all edge
        where = [(block.start, width)], (rows.index(block.row) - 0.4, 0.8)
        axes.broken_barh(*where, facecolor=colours[block.kind], edgecolor="white", linewidth=edge)
    turn = (window[1] - window[0]) / simulated.TURNS
    for number in range(1, simulated.TURNS + 1):
        axes.axvline(number * turn, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="y", visible=False)
    return {kind: colour for kind, colour in colours.items() if any(block.kind == kind for block in blocks)}
