"""Measure all-reduce times between ranks of this machine: the points that a cost is fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gradsync.results import write_whole

REPEATS = 15


def sizes(smallest: int, largest: int, a_decade: int = 6) -> list[int]:
    """Message sizes in bytes: whole float32 elements, even on a logarithmic scale, both ends among them."""
    first, last = (max(4, -(-size // 4) * 4) for size in (smallest, largest))
    count = max(2, round(np.log10(max(last / first, 1.0)) * a_decade) + 1)
    return sorted({int(size) // 4 * 4 for size in np.geomspace(first, last, count)} | {first, last})


def save(points: list[tuple[int, float]], path: Path) -> None:
    """Write the median seconds of each size as `bytes,seconds`, the form that `--allreduce` reads."""
    times: dict[int, list[float]] = {}
    for size, seconds in points:
        times.setdefault(size, []).append(seconds)
    rows = [f"{size},{float(np.median(found))!r}" for size, found in sorted(times.items())]
    write_whole(path, "\n".join(["bytes,seconds", *rows]) + "\n")
