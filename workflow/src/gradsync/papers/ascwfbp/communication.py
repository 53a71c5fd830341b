"""Fig. 4 and 5: one all-reduce, two contending ones, and what the paper's model and a shared link predict of them.

Published are only the paper's a, b and gamma, since its points are only drawn; derived is what follows by Eq. 7 and 9.
Measured are ranks of this machine over its loopback, emulated are hosts on limited links.

Differs from the paper: in addition to its constant gamma there is the capacity X of the link, by which
T_2 = a + h + max(1, 2/X) b m (`costs/contention_fit.py`), and gamma is derived size by size.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.costs import pairwise_contention
from gradsync.files.results import TIMED
from gradsync.papers.ascwfbp.contention_times import ContentionTimes, contention_times
from gradsync.papers.ascwfbp.testbed import Bench, bench
from gradsync.papers.repeats import REPEATS, columns, interval, of_a_quiet_machine
from gradsync.papers.table import Table
from gradsync.statistics.intervals import repeats_needed, shown

PAPER_CONSTANTS = "the paper's constants"
DRAWN = 49  # sizes of the paper's lines
FIG4A = [
    *("rung", "source", "nodes", REPEATS),
    *columns("a_seconds", "b_seconds_per_byte", "r_squared", "line_error", samples=False),
    *("points", "smallest_bytes", "largest_bytes", "note"),
]
FIG4B = [
    *("rung", "source", "nodes", REPEATS, *columns("gamma", "capacity", samples=False)),
    *columns("least_gain", "largest_gain", "share_at_full", "largest_share", samples=False),
    *("instances", "exceeds_link_from_bytes", "note"),
]
FIG5 = [
    *("rung", "source", "nodes", REPEATS, *columns("gamma", "mean_error", "worst_error", samples=False)),
    *("mean_error_of_capacity", "note"),
]
POINTS = [
    *("rung", "source", "nodes", "bytes", REPEATS, *columns("one_seconds", "two_seconds", "gamma", samples=False)),
    *("throughput_one", "throughput_two", "line_seconds", "predicted_seconds", "capacity_seconds"),
    *("link_bytes_per_second", "note"),
]


def fig4a(settings: Settings, results: Path) -> Table:
    """Fig. 4(a): the line through the times of one all-reduce; a row per source."""
    testbed = bench(settings)
    smallest, largest = testbed.fitted
    rows: list[dict[str, Any]] = [
        {
            **{"rung": "published", "source": PAPER_CONSTANTS, "nodes": testbed.nodes, "a_seconds": testbed.a},
            **{"b_seconds_per_byte": testbed.b, "smallest_bytes": smallest, "largest_bytes": largest},
            "note": "points are only drawn; as fast as the link: b = 2 / B (ASC-E32)",
        }
    ]
    for times in contention_times(settings, results):
        in_range = times.within(testbed)
        row = {"rung": times.rung, "source": times.source, "nodes": times.nodes}
        row |= times.jackknifed(lambda part: _line(part, testbed)) | {"points": int(in_range.sum()), "note": times.note}
        row |= {"smallest_bytes": times.sizes[in_range].min(), "largest_bytes": times.sizes[in_range].max()}
        rows.append(of_a_quiet_machine(row, [times.note]))
    frame = pd.DataFrame(rows, columns=FIG4A)
    display = pd.DataFrame(
        {
            "rung": frame.rung,
            "source": frame.source,
            "nodes": [_number(n, ".0f") for n in frame.nodes],
            "a [us]": _interval(frame, "a_seconds", ".1f", 1e6),
            "b [ns/B]": _interval(frame, "b_seconds_per_byte", ".3f", 1e9),
            "R^2": _interval(frame, "r_squared", ".4f"),
            "error of the line": _interval(frame, "line_error", ".1%"),
            "sizes": [_number(n, ".0f") for n in frame.points],
            "note": frame.note.fillna(""),
        }
    )
    caption = (
        f"Fig. 4(a): the line a + b m through the times of one all-reduce of {smallest / 1024:g} KiB to "
        f"{largest / 2**20:g} MiB by ordinary least squares; the error is the mean relative residual. In brackets 95 % "
        f"by the jackknife over sweeps, which fewer than {repeats_needed()} have not. Measured: ranks of this machine "
        "over its loopback, not a network. Emulated: hosts on limited links."
    )
    return Table(frame, display, caption)


def fig4b(settings: Settings, results: Path) -> Table:
    """Fig. 4(b): the gain of two contending all-reduces, and how much of the link they get; a row per source."""
    testbed = bench(settings)
    exceeds = pairwise_contention.exceeds_link_from(testbed.a, testbed.b, testbed.gamma, testbed.largest_throughput())
    rows: list[dict[str, Any]] = [
        {
            **{"rung": "derived", "source": PAPER_CONSTANTS, "nodes": testbed.nodes, "gamma": testbed.gamma},
            **{"capacity": 2 / testbed.gamma, "exceeds_link_from_bytes": exceeds},
            **_gains(*_model(testbed), testbed, testbed.largest_throughput()),
            "instances": len(_model(testbed)[0]),
            "note": "Eq. 7 and 9",
        }
    ]
    for times in contention_times(settings, results):
        of_two = [each for each in times.fit.gammas if each.lanes == 2 and each.gamma]
        largest = max(of_two, key=lambda each: each.bytes).gamma if of_two else None
        row = {"rung": times.rung, "source": times.source, "nodes": times.nodes, "note": times.note}
        for name, estimate in (("gamma", largest), ("capacity", times.fit.capacity)):
            row |= {} if estimate is None else interval(name, *estimate)
        row["instances"] = int(times.within(testbed).sum())
        row |= times.jackknifed(lambda part: _gains(part.sizes, part.alone, part.contending, testbed, part.link))
        rows.append(of_a_quiet_machine(row, [times.note]))
    frame = pd.DataFrame(rows, columns=FIG4B)
    display = pd.DataFrame(
        {
            "rung": frame.rung,
            "source": frame.source,
            "nodes": [_number(n, ".0f") for n in frame.nodes],
            "gamma": _interval(frame, "gamma"),
            "capacity": _interval(frame, "capacity"),
            "T2 / T1, least": _interval(frame, "least_gain"),
            "most": _interval(frame, "largest_gain"),
            "two above 2 MB, of the link": _interval(frame, "share_at_full", ".0%"),
            "most of the link": _interval(frame, "largest_share", ".0%"),
            "beyond the link from [MB]": [_number(size / 1e6, ".2f") for size in frame.exceeds_link_from_bytes],
            "note": frame.note.fillna(""),
        }
    )
    caption = (
        "Fig. 4(b): throughput of two simultaneous all-reduces, T2, over that of one, T1, smallest and largest from 8 "
        "KiB to 4 MiB, and of the link what two get (9.43 Gbit/s, 2 bytes on it for each that is all-reduced). With "
        f"the paper's constants T2 exceeds the link from {exceeds / 1e6:.2f} MB on (ASC-E32). In brackets 95 % by the "
        f"jackknife over sweeps, which fewer than {repeats_needed()} have not. gamma: measured at the largest size; "
        "capacity: messages that the link carries at full speed at a time. Measured: ranks of this machine over its "
        "loopback, where cores are what messages share."
    )
    return Table(frame, display, caption)


def fig5(settings: Settings, results: Path) -> Table:
    """Fig. 5: how well a + gamma b m, and the capacity of the link, predict contention; a row per source."""
    testbed = bench(settings)
    rows: list[dict[str, Any]] = [
        {
            "rung": "published",
            "source": PAPER_CONSTANTS,
            "nodes": testbed.nodes,
            "gamma": testbed.gamma,
            "note": "only drawn",
        }
    ]
    for times in contention_times(settings, results):
        in_range = times.within(testbed)
        capacity_errors = np.abs(times.by_capacity()[in_range] / times.contending[in_range] - 1)
        row = {"rung": times.rung, "source": times.source, "nodes": times.nodes}
        row |= times.jackknifed(lambda part: _errors(part, testbed))
        row |= {"mean_error_of_capacity": float(capacity_errors.mean()), "note": times.note}
        rows.append(of_a_quiet_machine(row, [times.note]))
    frame = pd.DataFrame(rows, columns=FIG5)
    display = frame[["rung", "source", "nodes"]].assign(
        gamma=_interval(frame, "gamma"),
        **{column: _interval(frame, column, ".1%") for column in ("mean_error", "worst_error")},
        mean_error_of_capacity=[_number(value, ".1%") for value in frame.mean_error_of_capacity],
        note=frame.note.fillna(""),
    )
    display = display.rename(columns=lambda name: name.replace("_", " "))
    caption = (
        "Fig. 5: two simultaneous all-reduces, predicted by a + gamma b m (a and b of the line of Fig. 4(a), one gamma "
        "for all sizes, of least relative squares) and by the capacity of the link, against measured; mean and worst "
        "relative error from 8 KiB to 4 MiB, in brackets 95 % by the jackknife over sweeps."
    )
    return Table(frame, display, caption)


def contention_points(settings: Settings, results: Path) -> Table:
    """Fig. 4 and 5 in full: a row per size and source."""
    testbed = bench(settings)
    sizes, one_seconds, two_seconds = _model(testbed)
    paper_points = {"rung": "derived", "source": PAPER_CONSTANTS, "nodes": testbed.nodes, "bytes": sizes, "note": ""}
    paper_points |= {"one_seconds": one_seconds, "two_seconds": two_seconds, "line_seconds": one_seconds}
    paper_points |= {"predicted_seconds": two_seconds, "gamma": testbed.gamma}
    shared = np.maximum(two_seconds, 2 * sizes / testbed.largest_throughput())  # no faster than the link
    frames = [
        pd.DataFrame(paper_points | {"capacity_seconds": shared, "link_bytes_per_second": testbed.largest_throughput()})
    ]
    for times in contention_times(settings, results):
        a, b, _ = times.line(testbed)
        gammas = {each.bytes: each.gamma for each in times.fit.gammas if each.lanes == 2}
        points = {
            "rung": times.rung,
            "source": times.source,
            "nodes": times.nodes,
            "bytes": times.sizes,
            "note": times.note,
        }
        points |= {"line_seconds": a + b * times.sizes, REPEATS: len(times.sweeps)}
        means = [times.jackknifed(partial(_times_of_size, number=number)) for number in range(len(times.sizes))]
        points |= {column: [each[column] for each in means] for column in columns(*TIMES_OF_SIZE, samples=False)}
        points |= {"predicted_seconds": _predicted(times, testbed), "capacity_seconds": times.by_capacity()}
        for name, end in (("gamma", "value"), ("gamma_low", "low"), ("gamma_high", "high")):
            points[name] = [getattr(gammas[int(size)], end, np.nan) for size in times.sizes]
        frames.append(pd.DataFrame(points | {"link_bytes_per_second": times.link}))
    frame = pd.concat(frames, ignore_index=True)
    frame["throughput_one"] = frame.bytes / frame.one_seconds
    frame["throughput_two"] = 2 * frame.bytes / frame.two_seconds
    frame = frame.reindex(columns=POINTS)
    known = frame[frame.rung.isin(TIMED)]
    display = pd.DataFrame(
        {
            "rung": known.rung,
            "source": known.source,
            "bytes": known.bytes.map("{:.0f}".format),
            **{
                title: (1e6 * known[f"{column}_seconds"]).map("{:.0f}".format)
                for title, column in (("one [us]", "one"), ("line [us]", "line"), ("two [us]", "two"))
            },
            "a + gamma b m [us]": (1e6 * known.predicted_seconds).map("{:.0f}".format),
            "capacity [us]": (1e6 * known.capacity_seconds).map("{:.0f}".format),
            "T2 / T1": (known.throughput_two / known.throughput_one).map("{:.2f}".format),
            "gamma": _interval(known, "gamma"),
        }
    )
    caption = (
        "One and two simultaneous all-reduces by size: mean seconds of one, and what the line of Fig. 4(a), a + gamma "
        "b m and the capacity of the link make of it. The paper's own lines are in the CSV file."
    )
    return Table(frame, display, caption)


TIMES_OF_SIZE = ("one_seconds", "two_seconds")


def _times_of_size(times: ContentionTimes, number: int) -> dict[str, float]:
    """The mean times of one size."""
    return dict(zip(TIMES_OF_SIZE, (float(times.alone[number]), float(times.contending[number])), strict=True))


def _line(times: ContentionTimes, testbed: Bench) -> dict[str, float]:
    """The line of Fig. 4(a), and how well it fits."""
    in_range = times.within(testbed)
    a, b, r_squared = times.line(testbed)
    error = float(np.mean(np.abs((a + b * times.sizes[in_range]) / times.alone[in_range] - 1)))
    return {"a_seconds": a, "b_seconds_per_byte": b, "r_squared": r_squared, "line_error": error}


def _errors(times: ContentionTimes, testbed: Bench) -> dict[str, float]:
    """The gamma of Fig. 5, and how far off a + gamma b m is with it."""
    in_range = times.within(testbed)
    errors = np.abs(_predicted(times, testbed)[in_range] / times.contending[in_range] - 1)
    return {
        "gamma": times.constant_gamma(testbed),
        "mean_error": float(errors.mean()),
        "worst_error": float(errors.max()),
    }


def _model(testbed: Bench) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, and the paper's seconds of one all-reduce (Eq. 3) and of each of two."""
    smallest, largest = testbed.fitted
    sizes = np.unique([*np.geomspace(smallest, largest, DRAWN).round(), 2.0**21])
    throughput_two = pairwise_contention.throughput_two
    contending = [2 * size / throughput_two(size, testbed.a, testbed.b, testbed.gamma) for size in sizes]
    return sizes, np.asarray(testbed.line.seconds(sizes)), np.array(contending)


def _gains(
    sizes: np.ndarray, alone: np.ndarray, contending: np.ndarray, testbed: Bench, link: float
) -> dict[str, float]:
    """T2/T1 over the sizes of Fig. 4, and the share of the link that two get."""
    in_range = (sizes >= testbed.fitted[0]) & (sizes <= testbed.fitted[1])
    gain, share = 2 * alone[in_range] / contending[in_range], 2 * sizes[in_range] / contending[in_range] / link
    full = share[sizes[in_range] >= testbed.full]
    return {
        "least_gain": float(gain.min()),
        "largest_gain": float(gain.max()),
        "share_at_full": float(full.min()) if len(full) else np.nan,  # the least above that size
        "largest_share": float(share.max()),
    }


def _predicted(times: ContentionTimes, testbed: Bench) -> np.ndarray:
    a, b, _ = times.line(testbed)
    return a + times.constant_gamma(testbed) * b * times.sizes


def _interval(frame: pd.DataFrame, column: str, form: str = ".2f", scale: float = 1.0) -> list[str]:
    values = zip(frame[column], frame[f"{column}_low"], frame[f"{column}_high"], strict=True)
    return [
        shown(each, form, scale) if rung in TIMED else _number(scale * each[0], form)
        for rung, each in zip(frame.rung, values, strict=True)
    ]


def _number(value: float, form: str) -> str:
    return "-" if pd.isna(value) else format(value, form)
