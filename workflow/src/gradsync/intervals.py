"""What repeated measurements of one quantity say: its median and how sure that is."""

from __future__ import annotations

from typing import Any

import numpy as np


def median_interval(values: Any, confidence: float = 0.95) -> tuple[float, float, float]:
    """(low, median, high): the distribution-free interval of the median by order statistics."""
    from scipy.stats import binom

    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    k = int(binom.ppf((1 - confidence) / 2, n, 0.5))  # at most k values lie below the median with that probability
    return float(ordered[max(k - 1, 0)]), float(np.median(ordered)), float(ordered[min(n - k, n - 1)])
