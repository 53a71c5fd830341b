"""Runs that were never run: repeats around a number, the same moments slow for every contender of a launch."""

from __future__ import annotations

from typing import Any

import numpy as np

MOMENTS = (1.0, 0.9, 1.0, 1.1, 1.0, 1.0)  # what the machine made of each block


def repeated(moments: tuple[float, ...] = MOMENTS, **numbers: float) -> dict[str, Any]:
    """`summary` and `samples` of a Result: each number's repeats, their median, and, if they are six, the ends."""
    samples = {key: [number * moment for moment in moments] for key, number in numbers.items()}
    summary = {key: float(np.median(each)) for key, each in samples.items()}
    if len(moments) >= 6:
        summary |= {f"{key}_low": min(each) for key, each in samples.items()}
        summary |= {f"{key}_high": max(each) for key, each in samples.items()}
    return {"summary": summary, "samples": samples}
