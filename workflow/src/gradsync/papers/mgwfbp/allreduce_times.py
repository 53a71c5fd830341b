"""Fig. 5(b): the time of an all-reduce against its size, of this machine and the authors' logs, and fits to it.

Differs from the paper: in addition to its one line T(M) = a + b M there is a fit by pieces: measured times are no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.costs.fitted import fit, straight_line
from gradsync.errors import InputError
from gradsync.files.results import TIMED
from gradsync.measure import carried
from gradsync.papers.emulated import runs
from gradsync.papers.mgwfbp import testbed
from gradsync.papers.mgwfbp.emulation import on_paper_links
from gradsync.papers.repeats import REPEATS, columns, interval, jackknifed
from gradsync.papers.table import Table
from gradsync.statistics.intervals import repeats_needed, shown
from gradsync.statistics.quiet import load_warnings_of_points

THIS_MACHINE = "this machine"
PAPER = "the paper's text"
LAYER_LOG = "layer log"  # of the all-reduces in training; the other logs are of a benchmark
FITS = [
    *("rung", "source", "nodes", REPEATS, *columns("a_seconds", "b_seconds_per_byte", "r_squared", samples=False)),
    *("line_error", "pieces", "pieces_error", "points", "smallest_bytes", "largest_bytes", "note"),
]
POINTS = [
    *("rung", "source", "nodes", "bytes", "seconds", "seconds_low", "seconds_high", "line_seconds", "pieces_seconds"),
    "note",
]
MEASURED = [
    "ranks",
    "bytes",
    "seconds",
    "seconds_low",
    "seconds_high",
]  # columns that a measurement needs


class Series(NamedTuple):
    """Points of one source and number of nodes: `bytes`, `seconds`, `seconds_low`, `seconds_high` (NaN: no interval).

    `undecidable`: why no claim may be decided on them, if so.
    """

    rung: str
    source: str
    nodes: int
    points: pd.DataFrame
    undecidable: str = ""

    @property
    def timed(self) -> bool:
        """Whether the points were timed on this machine."""
        return self.rung in TIMED


def fig5b(settings: Settings, results: Path) -> Table:
    """Fig. 5(b) summed up: a row per source and number of nodes, with one line and the fit by pieces."""
    series = list(_series(settings, results))
    rows: list[dict[str, Any]] = [
        {"rung": "published", "source": PAPER, "nodes": n, "a_seconds": a, "note": "b is only drawn"}
        for n, a in testbed.startups(settings).items()
    ]
    rows += [_fits(each) for each in series]
    frame = pd.DataFrame(rows, columns=FITS)
    display = pd.DataFrame(
        {
            "rung": frame.rung,
            "source": frame.source,
            "nodes": frame.nodes,
            "a [us]": _interval(frame, "a_seconds", ".1f", 1e6),
            "b [ns/B]": _interval(frame, "b_seconds_per_byte", ".3f", 1e9),
            "R^2": _interval(frame, "r_squared", ".4f"),
            "error of the line": [_number(e, ".1%") for e in frame.line_error],
            "pieces": [_number(p, ".0f") for p in frame.pieces],
            "error of the pieces": [_number(e, ".1%") for e in frame.pieces_error],
            "largest [B]": [_number(size, ".0f") for size in frame.largest_bytes],
            "note": frame.note.fillna(""),
        }
    )
    caption = (
        "Fig. 5(b): all-reduce time against size: one line T(M) = a + b M by ordinary least squares, as the paper "
        "models it, and a fit by pieces; errors are mean relative residuals. In brackets 95 %, of the points around "
        "the line (b, R^2: by the jackknife). Measured: this machine's ranks over "
        "its loopback, not a network. Emulated: hosts on limited links, which carry long messages at their rate "
        "whatever the start-up. Published: the authors' logs, which decide no "
        "claim here."
    )
    return Table(frame, display, caption + _on_the_logs(frame))


def fig5b_points(settings: Settings, results: Path) -> Table:
    """Fig. 5(b) in full: a row per measured point, with what the line and the pieces predict for it."""
    frames = []
    for series in _series(settings, results):
        sizes, seconds = series.points.bytes.to_numpy(float), series.points.seconds.to_numpy(float)
        pieces = fit(sizes, seconds, source=series.source)  # refuses points that no line goes through
        a, b, _ = straight_line(sizes, seconds)
        frames.append(
            series.points.assign(
                rung=series.rung,
                source=series.source,
                nodes=series.nodes,
                line_seconds=a + b * sizes,
                pieces_seconds=pieces.seconds(sizes),
                note=series.undecidable,
            )
        )
    frame = pd.concat(frames, ignore_index=True)[POINTS]
    display = frame[frame.source == THIS_MACHINE].drop(columns=["rung", "source"])
    caption = (
        "Fig. 5(b): median seconds of an all-reduce on this machine with 95 % intervals, and what one line and the fit "
        "by pieces make of each size. The points of the authors' logs are in the CSV file."
    )
    return Table(frame, display, caption)


def intercept_interval(sizes: np.ndarray, seconds: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the start-up a of the line of least squares through (bytes, seconds).

    A line's repeats are its points: if they are too few, the interval is everything.
    """
    from scipy.special import stdtrit

    n = len(sizes)
    a, b, _ = straight_line(sizes, seconds)
    if n < repeats_needed(confidence):
        return -np.inf, np.inf
    variance = ((seconds - a - b * sizes) ** 2).sum() / (n - 2)
    spread = ((sizes - sizes.mean()) ** 2).sum()
    half = stdtrit(n - 2, 0.5 + confidence / 2) * np.sqrt(variance * (1 / n + sizes.mean() ** 2 / spread))
    return float(a - half), float(a + half)


def _fits(series: Series) -> dict[str, Any]:
    sizes, seconds = series.points.bytes.to_numpy(float), series.points.seconds.to_numpy(float)
    pieces = fit(sizes, seconds, source=series.source)  # refuses points that no line goes through
    row: dict[str, Any] = {
        "rung": series.rung,
        "source": series.source,
        "nodes": series.nodes,
        REPEATS: len(sizes) if series.timed else np.nan,
        "points": len(sizes),
        "smallest_bytes": sizes.min(),
        "largest_bytes": sizes.max(),
        "note": series.undecidable,
    }
    if series.undecidable:
        return row
    a, b, r_squared = straight_line(sizes, seconds)
    low, high = intercept_interval(sizes, seconds)
    # as for the start-up, the points are the repeats: these are the lines without each of them
    without = [
        straight_line(np.delete(sizes, i), np.delete(seconds, i)) for i in range(len(sizes) if series.timed else 0)
    ]
    row |= jackknifed(
        {"b_seconds_per_byte": b, "r_squared": r_squared},
        [{"b_seconds_per_byte": slope, "r_squared": squared} for _, slope, squared in without],
    )
    row |= {
        "line_error": float(np.mean(np.abs((a + b * sizes) / seconds - 1))),
        "pieces": len(pieces.bounds),
        "pieces_error": pieces.residual,
    }
    if low <= 0:  # a ratio of such intercepts would be one of noise
        reason = f"95 %: {1e6 * low:.0f} .. {1e6 * high:.0f} us" if np.isfinite(low) else f"{len(sizes)} points"
        return row | {"note": f"{series.nodes} nodes: the intercept of the line can't be told from 0 ({reason})"}
    return row | interval("a_seconds", a, low, high)


def _series(settings: Settings, results: Path) -> Iterator[Series]:
    yield from _measured(results / "profile" / "network" / "allreduce.csv")
    yield from _emulated(settings, results)
    for n in (2, 8):
        yield _logged(f"allreduce{n}.log", n, *carried.allreduces(n))
    yield _logged(LAYER_LOG, 8, *carried.layer_allreduces())


def _logged(source: str, nodes: int, sizes: np.ndarray, seconds: np.ndarray) -> Series:
    points = pd.DataFrame({"bytes": sizes, "seconds": seconds, "seconds_low": np.nan, "seconds_high": np.nan})
    return Series("published", source, nodes, points.sort_values("bytes", kind="stable", ignore_index=True))


def _measured(path: Path) -> Iterator[Series]:
    """The series of this machine by number of ranks; raises InputError if the file is missing or another one."""
    try:
        frame = pd.read_csv(path, comment="#")
        text = path.read_text()
        cores, loaded = _cores(text), "; ".join(load_warnings_of_points(text, "all-reduces"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read: {str(error).strip()}: measure it again") from None
    missing = [column for column in MEASURED if column not in frame.columns]
    if missing or cores is None or not all(pd.api.types.is_numeric_dtype(frame[column]) for column in MEASURED):
        what = f"no column {', '.join(missing)}" if missing else "no number of cores or a cell that is no number"
        raise InputError(f"{path}: not all-reduce times: {what}: measure it again")
    for ranks, points in frame.groupby("ranks"):
        n = int(str(ranks))
        shared = f"{n} ranks share {cores} cores: not decidable on this machine" if n > cores else loaded
        yield Series("measured", THIS_MACHINE, n, points[MEASURED[1:]].reset_index(drop=True), shared)


def _emulated(settings: Settings, results: Path) -> Iterator[Series]:
    """The series of the testbed of one launch of each number of hosts, in seconds of what the launch stands for."""
    host_counts = set()
    for launch in on_paper_links(settings):
        path = results / "emulated" / launch.job / "allreduce.csv"
        if launch.ranks in host_counts or not runs(launch, results)[0]:
            continue
        host_counts.add(launch.ranks)
        points = pd.read_csv(path, comment="#", keep_default_na=False)
        points = points[points.collective == ""][MEASURED[1:]].reset_index(drop=True)
        for column in MEASURED[2:]:
            # a size with too few messages has no interval
            points[column] = pd.to_numeric(points[column].replace("", np.nan)) / launch.dilation
        yield Series("emulated", f"testbed of {launch.job}", launch.ranks, points)


def _cores(text: str) -> int | None:
    """The number of cores that the comment lines of a measurement name."""
    match = re.search(r"^#.*\bcores\W+(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else None


def _on_the_logs(frame: pd.DataFrame) -> str:
    """A sentence on how the claims on start-ups and on the straight line would fare on the logs."""
    logged = frame[frame.source.str.startswith("allreduce")].set_index("nodes")
    a, r = logged.a_seconds, logged.r_squared
    return (
        f" On the logs the start-up grows {a[8] / a[2]:.2f} times from 2 to 8 nodes (the paper: 7), and R^2 of the "
        f"line is {r[2]:.3f} at 2 and {r[8]:.3f} at 8 nodes, with mean errors of {logged.line_error[2]:.0%} and "
        f"{logged.line_error[8]:.0%}: not affine where the protocol changes."
    )


def _interval(frame: pd.DataFrame, column: str, form: str, scale: float = 1.0) -> list[str]:
    values = zip(frame.rung, frame[column], frame[f"{column}_low"], frame[f"{column}_high"], strict=True)
    return [shown(each, form, scale) if rung in TIMED else _number(scale * each[0], form) for rung, *each in values]


def _number(value: float, form: str) -> str:
    return "-" if pd.isna(value) else format(value, form)
