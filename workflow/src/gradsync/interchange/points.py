"""Points of the all-reduce in recordings: the file of bytes and seconds that planners read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradsync.interchange.ranks import Rank, matched
from gradsync.interchange.recording import Message
from gradsync.statistics.intervals import median_interval

SLACK = 1e-6  # seconds by which recorders of one clock may let two messages overlap that don't


class RecordedPoint(NamedTuple):
    """All-reduces of one size between so many ranks: the median with its 95 % interval, the mean; seconds."""

    ranks: int
    bytes: int
    seconds: float
    seconds_low: float | None
    seconds_high: float | None
    mean_seconds: float
    repeats: int


class RecordedPoints(NamedTuple):
    """The points by size, and what a reader must know of them."""

    points: list[RecordedPoint]
    notes: list[str]


def points(ranks: Sequence[Rank]) -> RecordedPoints:
    """Of the all-reduces whose size was recorded; those beside another message are left out if others are there."""
    times: dict[tuple[int, int], list[tuple[float, bool]]] = defaultdict(list)
    overlapped = {id(message) for rank in ranks for message in _overlapped(rank.recording.messages)}
    unsized = 0
    for each in matched(ranks):
        first = each[0]
        if first.kind != "all_reduce":
            continue
        if first.bytes is None:
            unsized += 1
            continue
        seconds = min(message.end - message.start for message in each)
        beside = any(id(message) in overlapped for message in each)
        size = first.ranks or ranks[0].recording.ranks or len(ranks)
        if seconds > 0 and size > 1:
            times[size, first.bytes].append((seconds, beside))
    alone = {key: [seconds for seconds, beside in each if not beside] for key, each in times.items()}
    measured = {key: alone[key] or [seconds for seconds, _ in each] for key, each in times.items()}
    made = []
    for (size, count), seconds_of in sorted(measured.items()):
        low, middle, high = median_interval(seconds_of)
        made.append(RecordedPoint(size, count, middle, low, high, float(np.mean(seconds_of)), len(seconds_of)))
    notes = []
    if unsized:
        notes.append(f"{unsized} all-reduces have no recorded size and give no point: record with record_shapes=True")
    if dropped := sum(len(each) - len(alone[key]) for key, each in times.items() if alone[key]):
        notes.append(f"{dropped} all-reduces overlapped other messages and give no point")
    if crowded := sorted({key[1] for key, kept in alone.items() if not kept}):
        notes.append(
            f"all-reduces of {', '.join(map(str, crowded))} bytes always overlap others: their times have contention"
        )
    if made and len(ranks) < 2:
        notes.append("times of all-reduces are of one rank, with its waiting for the others: give the traces of all")
    if len(made) == 1:
        notes.append("the all-reduces have one size only, and a fit needs two: record with smaller buckets, too")
    return RecordedPoints(made, notes)


def _overlapped(messages: Sequence[Message]) -> list[Message]:
    """Messages of a rank that are under way while another is; they are in order of start."""
    beside = []
    longest: Message | None = None
    for message in messages:
        if longest is not None and message.start < longest.end - SLACK:
            beside += [longest, message]
        if longest is None or message.end > longest.end:
            longest = message
    return beside


def to_csv(made: RecordedPoints, provenance: Mapping[str, Any]) -> str:
    """The file that `--allreduce` reads: provenance as comments, then a line per point."""
    lines = [f"# {key}: {json.dumps(value)}" for key, value in provenance.items()]
    lines.append(",".join(RecordedPoint._fields))
    lines += [",".join("" if cell is None else repr(cell) for cell in point) for point in made.points]
    return "\n".join(lines) + "\n"
