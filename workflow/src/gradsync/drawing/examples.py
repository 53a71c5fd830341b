"""Timelines of drawn examples below one another, as the papers' schematic figures have them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib import pyplot as plt

from gradsync.drawing import timeline
from gradsync.drawing.style import Drawn
from gradsync.plan import Plan
from gradsync.plan.trace import Trace


def timelines(examples: Mapping[str, tuple[Plan, Trace]]) -> Drawn:
    """A panel per title, with the period of its trace, as high as it has lanes; all on one axis."""
    heights = [0.6 + 0.3 * len(trace.lanes) for _, trace in examples.values()]
    figure, grid = plt.subplots(
        *(len(examples), 1),
        figsize=(7, 0.7 + sum(heights)),
        squeeze=False,
        sharex=True,
        height_ratios=heights,
    )
    frames, longest = [], 0.0
    for axes, (title, (plan, trace)) in zip(grid[:, 0], examples.items(), strict=True):
        window = timeline.period(trace)
        timeline.panel(axes, trace, window, labels=timeline.message_labels(plan), unit="drawn units")
        axes.set_yticklabels(trace.lanes)
        end, longest = trace.iteration_seconds(), max(longest, window[1] - window[0])
        axes.axvline(end, color="black", linewidth=0.8, linestyle="--")
        exposed = trace.exposed_communication_seconds()
        axes.set_title(f"{title}: iteration {end:.2f}, exposed communication {exposed:.2f}", loc="left")
        frames.append(pd.DataFrame(trace.of(0)).assign(panel=title))
    for axes in grid[:-1, 0]:
        axes.set_xlabel("")
    grid[-1, 0].set_xlim(0, longest)
    timeline.legend(figure, trace)
    return figure, pd.concat(frames)
