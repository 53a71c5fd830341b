"""Fig. 1 to 4 of the MG-WFBP paper and the counterexample to its Theorem 1: timelines of drawn examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from gradsync.papers.mgwfbp import examples
from gradsync.render import timeline
from gradsync.render.style import Drawn
from gradsync.settings import Settings


def timelines(*cases: tuple[str, str, str]) -> Callable[[Settings, Path], Drawn]:
    """Panels (title, case, scheme) of four-layer examples."""

    def drawn(settings: Settings, results: Path) -> Drawn:
        figure, grid = plt.subplots(len(cases), 1, figsize=(7, 0.6 + 1.25 * len(cases)), squeeze=False, sharex=True)
        frames = []
        longest = 0.0
        for axes, (title, case, name) in zip(grid[:, 0], cases, strict=True):
            _, plan, trace = examples.example(case, name)
            window = timeline.period(trace)
            timeline.panel(axes, trace, window, labels=timeline.message_labels(plan), unit="drawn units")
            end = trace.iteration_seconds()
            longest = max(longest, window[1] - window[0])
            axes.axvline(end, color="black", linewidth=0.8, linestyle="--")
            exposed = trace.exposed_communication_seconds()
            axes.set_title(f"{title}: iteration {end:.2f}, exposed communication {exposed:.2f}", loc="left")
            axes.set_yticklabels(trace.lanes)
            frames.append(pd.DataFrame(trace.of(0)).assign(panel=title))
        for axes in grid[:-1, 0]:
            axes.set_xlabel("")
        grid[-1, 0].set_xlim(0, longest)
        timeline.legend(figure, trace)
        return figure, pd.concat(frames)

    return drawn
