"""Fig. 1 to 3 of the ASC-WFBP paper and the counterexample to its Theorem 1: timelines of drawn examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from gradsync.papers.ascwfbp import examples
from gradsync.render import timeline
from gradsync.render.style import Drawn
from gradsync.settings import Settings


def timelines(figure_name: str, titles: Mapping[str, str]) -> Callable[[Settings, Path], Drawn]:
    """A panel a schedule of a drawn example, under these titles."""

    def drawn(settings: Settings, results: Path) -> Drawn:
        found = {title: examples.example(figure_name, name) for name, title in titles.items()}
        heights = [0.6 + 0.3 * len(trace.lanes) for _, _, trace in found.values()]
        figure, grid = plt.subplots(
            *(len(found), 1),
            figsize=(7, 0.7 + sum(heights)),
            squeeze=False,
            sharex=True,
            height_ratios=heights,
        )
        frames, longest = [], 0.0
        for axes, (title, (_, plan, trace)) in zip(grid[:, 0], found.items(), strict=True):
            window = timeline.period(trace)
            timeline.panel(axes, trace, window, labels=timeline.message_labels(plan), unit="drawn units")
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

    return drawn
