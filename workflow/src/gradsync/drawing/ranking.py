"""Schemes as bars, the fastest on top: what is computed, what of communication is exposed, and the interval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gradsync.drawing import style

Values = np.ndarray[Any, np.dtype[np.float64]]
LONGEST = 3.0  # times stock DDP, or the fastest: the axis ends there, so that the fastest can be told apart
KEYS = ("iteration_seconds", "low_seconds", "high_seconds", "exposed_communication_seconds")


def draw(advice: dict[str, Any], path: Path) -> None:
    """Draw what `gradsync advise` gives, a bar for each scheme; raises InputError for another ending than style's."""
    style.use()
    rows = advice["ranking"]
    milliseconds = 1e3 * np.array([[row[key] for row in rows] for key in KEYS])
    whole, low, high, exposed = milliseconds
    places = np.arange(len(rows))
    figure, axes = plt.subplots(figsize=(7.0, 0.7 + 0.24 * len(rows)), layout="constrained")
    axes.barh(places, whole - exposed, 0.8, color="C0", label="computation, and communication behind it")
    errors = np.clip([whole - low, high - whole], 0.0, None)
    axes.barh(places, exposed, 0.8, left=whole - exposed, color="C1", label="exposed communication", xerr=errors)
    axes.set_yticks(places, [row["label"] for row in rows])
    baseline = next((row["iteration_seconds"] for row in rows if row["over_baseline"] == 1.0), None)
    end = min(1.1 * max(high), LONGEST * 1e3 * (baseline or rows[0]["iteration_seconds"])) or 1.0
    axes.set_xlim(0, end)
    if baseline is not None:
        axes.axvline(1e3 * baseline, color="black", linestyle=":", linewidth=1.0, label="stock DDP, default buckets")
    _tell(axes, whole, high, end)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel("iteration, ms (predicted)")
    axes.set_title(f"{advice['workload']}, {advice['ranks']} ranks on {advice['topology']}", loc="left")
    figure.legend(loc="outside lower center", ncols=2)
    style.save(figure, path)
    plt.close(figure)


def _tell(axes: Axes, whole: Values, high: Values, end: float) -> None:
    """Write the time of each bar behind it, or into one that reaches the end of the axis."""
    for place, (time, top) in enumerate(zip(whole, high, strict=True)):
        within = time > 0.9 * end
        axes.annotate(
            f"{time:.4g}" if time < 1000 else f"{time:,.0f}",
            (min(time if within else top, end), place),
            (-4 if within else 4, 0),
            textcoords="offset points",
            color="white" if within else "black",
            ha="right" if within else "left",
            va="center",
            fontsize="x-small",
            bbox=None if within else {"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
