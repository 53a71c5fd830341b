"""Table 5: times to 93 % top-5 accuracy as published, with the link of each cluster."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.recipe import RUNS
from gradsync.papers.table import file, read


def table5(settings: Settings, results: Path) -> Drawn:
    """Bars by entry."""
    frame = read(file(results, "cloud_topk", "table5"), ["rung", "entry", "seconds", "link_gbit_per_second"])
    shown = frame[frame.rung == "derived"]
    figure, axes = plt.subplots(figsize=(6.4, 3.2))
    bars = axes.barh([RUNS[entry] for entry in shown.entry], shown.seconds)
    axes.bar_label(bars, [_text(row) for _, row in shown.iterrows()], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35 * shown.seconds.max())
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("time to a top-5 accuracy of 93 % [s]")
    axes.set_title("Table 5, as published: ResNet-50 on 128 V100", loc="left")
    return figure, frame


def _text(row: pd.Series) -> str:
    link = "no link stated" if pd.isna(row.link_gbit_per_second) else f"{row.link_gbit_per_second:g} Gbit/s"
    return f"{row.seconds:g} s, {link}"
