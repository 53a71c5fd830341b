"""Fig. 12: time to the accuracy by parts of the chip, as published and over the band of what is not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.partition import PARTS
from gradsync.papers.table import file, read

WIDTH = 0.2
PROGRESS = "progress samples, batch_of_a_part whole"  # divided batches, with either kind of progress, give the same


def fig12(settings: Settings, results: Path) -> Drawn:
    """Bars by parts: published, and simulated for each serial share if the accuracy takes as many samples.

    Beside them what was measured here, if it was; on shared cores it decides nothing, and is hatched.
    """
    frame = read(file(results, "easgd_knl", "fig12"), ["rung", "parts", "assumption", "seconds", "observed_seconds"])
    shown = {"published": frame[frame.rung == "published"]}
    for name, part in frame[frame.assumption.str.endswith(PROGRESS)].groupby("assumption", sort=False):
        share = str(name).partition(", ")[0].removeprefix("serial ")
        shown[f"simulated, serial share {_named(share)}"] = part
    here = frame[(frame.rung == "measured") & frame.observed_seconds.notna()].sort_values("parts")
    widths = [3, 1] if len(here) else [1]
    figure, grid = plt.subplots(1, len(widths), figsize=(7.2, 4.0), width_ratios=widths, squeeze=False)
    axes = grid[0, 0]
    for number, (name, part) in enumerate(shown.items()):
        seconds = part.set_index("parts").seconds
        places = [place + WIDTH * (number - (len(shown) - 1) / 2) for place in range(len(PARTS))]
        axes.bar(places, [seconds[parts] for parts in PARTS], 0.92 * WIDTH, color=f"C{number}", label=name)
    axes.set_xticks(range(len(PARTS)), [_in_words(parts) for parts in PARTS])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("time to an accuracy of 0.625 [s]")
    axes.set_title(
        "Fig. 12, AlexNet on Cifar, as many samples to the accuracy\nhowever many parts there are", loc="left"
    )
    if len(here):
        _measured(grid[0, 1], here)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, pd.concat([*shown.values(), here])


def _measured(axes: Axes, here: pd.DataFrame) -> None:
    """The seconds of the launches of this machine."""
    for place, (_, row) in enumerate(here.iterrows()):
        crowded = pd.isna(row.seconds)
        axes.bar(place, row.observed_seconds, 3 * WIDTH, color="C5", hatch="//" if crowded else None)
    axes.set_xticks(range(len(here)), [_in_words(int(parts)) for parts in here.parts])
    axes.grid(visible=False, axis="x")
    axes.set_title("measured here [s]", loc="left")


def _named(share: str) -> str:
    return "fitted to 16 parts" if share == "fitted" else share


def _in_words(parts: int) -> str:
    return "one part" if parts == 1 else f"{parts} parts"
