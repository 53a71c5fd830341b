"""Fig. 12: time to the accuracy by parts of the chip, as published and over the band of what is not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.partition import PARTS
from gradsync.papers.table import file, read

WIDTH = 0.2
PROGRESS = "progress samples, batch_of_a_part whole"  # divided batches, with either kind of progress, give the same


def fig12(settings: Settings, results: Path) -> Drawn:
    """Bars by parts: published, and simulated for each serial share if the accuracy takes as many samples."""
    frame = read(file(results, "easgd_knl", "fig12"), ["rung", "parts", "assumption", "seconds"])
    shown = {"published": frame[frame.rung == "published"]}
    for name, part in frame[frame.assumption.str.endswith(PROGRESS)].groupby("assumption", sort=False):
        share = str(name).partition(", ")[0].removeprefix("serial ")
        shown[f"simulated, serial share {_named(share)}"] = part
    figure, axes = plt.subplots(figsize=(7.2, 4.0))
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
    figure.legend(loc="outside lower center", ncols=2)
    return figure, pd.concat(shown.values())


def _named(share: str) -> str:
    return "fitted to 16 parts" if share == "fitted" else share


def _in_words(parts: int) -> str:
    return "one part" if parts == 1 else f"{parts} parts"
