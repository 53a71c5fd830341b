"""Schemes as bars, the fastest on top: what is computed, what of communication is exposed, and the interval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from gradsync.drawing import style

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
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel("iteration, ms (predicted)")
    axes.set_title(f"{advice['workload']}, {advice['ranks']} ranks on {advice['topology']}", loc="left")
    axes.legend(loc="upper right")
    style.save(figure, path)
    plt.close(figure)
