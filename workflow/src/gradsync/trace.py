"""A trace: what happened when, from a simulator or from real ranks; rendering never asks which.

Seconds throughout. Spans of one rank are on one clock; `Trace.rung` says what kind of evidence the trace is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gradsync.errors import InputError
from gradsync.plan import COMPUTE, first_problem

VERSION = 1


class Span(NamedTuple):
    """One operation of one rank in one turn, [start, end) in seconds; `source` of a receive."""

    rank: int
    turn: int
    operation: str
    verb: str
    lane: str
    start: float
    end: float
    bytes: int = 0
    source: int | None = None


@dataclass(frozen=True)
class Trace:
    """Spans in order of completion; `turns` of the loop. A symmetric plan's trace may hold rank 0 alone."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    rung: str
    turns: int
    spans: tuple[Span, ...]
    provenance: dict[str, str] = dataclasses.field(default_factory=dict)
    version: int = VERSION

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that the trace holds."""
        return tuple(sorted({span.rank for span in self.spans}))

    def of(self, rank: int, turn: int | None = None) -> list[Span]:
        """Spans of one rank (of one turn) in order of start."""
        found = [span for span in self.spans if span.rank == rank and turn in (None, span.turn)]
        return sorted(found, key=lambda span: (span.start, span.end))

    def turn_starts(self, rank: int = 0) -> list[float]:
        """When each turn begins on `rank`: the start of its first forward (else of its first operation)."""
        starts: dict[int, float] = {}
        forward = {span.turn for span in self.spans if span.rank == rank and span.verb == "need"}
        for span in self.spans:
            if span.rank == rank and (span.verb == "need" or span.turn not in forward):
                starts[span.turn] = min(span.start, starts.get(span.turn, span.start))
        return [starts[turn] for turn in sorted(starts)]

    def iteration_seconds(self, rank: int = 0) -> float:
        """Period of the steady state: between the starts of the last two turns that are in the trace."""
        starts = self.turn_starts(rank)
        if len(starts) < 2:
            raise InputError(f"trace {self.name!r}: {len(starts)} turn(s) of rank {rank}; a period needs two")
        return starts[-1] - starts[-2]

    def windows(self, rank: int = 0) -> list[tuple[float, float]]:
        """Every whole period of `rank`."""
        return list(pairwise(self.turn_starts(rank)))

    def window(self, rank: int = 0) -> tuple[float, float]:
        """The last whole period of `rank`."""
        return self.windows(rank)[-1]

    def busy(self, rank: int, lanes: Iterable[str], window: tuple[float, float]) -> list[tuple[float, float]]:
        """Union of the spans of `lanes` inside `window`, as disjoint intervals."""
        wanted = set(lanes)
        return _union(
            (max(span.start, window[0]), min(span.end, window[1]))
            for span in self.spans
            if span.rank == rank and span.lane in wanted and span.end > window[0] and span.start < window[1]
        )

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Lanes in order of first use, `compute` first."""
        names = dict.fromkeys(span.lane for span in self.spans)
        return tuple(sorted(names, key=lambda name: name != COMPUTE))

    def exposed_communication_seconds(self, rank: int = 0, window: tuple[float, float] | None = None) -> float:
        """Seconds of a period in which a message is under way and nothing is computed (the paper's t_c^no).

        `window`: default the last period.
        """
        window = window or self.window(rank)
        compute = self.busy(rank, [COMPUTE], window)
        communication = self.busy(rank, [lane for lane in self.lanes if lane != COMPUTE], window)
        return _length(communication) - _length(_intersect(communication, compute))

    def computation_seconds(self, rank: int = 0, window: tuple[float, float] | None = None) -> float:
        """Seconds of a period (default the last) in which something is computed, slowed by messages or not."""
        return _length(self.busy(rank, [COMPUTE], window or self.window(rank)))

    def overlap_seconds(self, first: str, second: str, rank: int = 0) -> float:
        """Seconds of one period in which both lanes are busy."""
        window = self.window(rank)
        return _length(_intersect(self.busy(rank, [first], window), self.busy(rank, [second], window)))

    def to_json(self) -> str:
        """JSON that `from_json` reads."""
        return json.dumps(_ADAPTER.dump_python(self, mode="json"))

    @staticmethod
    def from_json(text: str, where: str = "trace") -> Trace:
        """Parse and validate; raises InputError that names the place."""
        try:
            trace = _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise InputError(f"{where}: not a trace: {first_problem(error)}") from None
        if trace.version != VERSION:
            raise InputError(f"{where}: trace version {trace.version}; this gradsync reads version {VERSION}")
        return trace

    def to_chrome(self) -> str:
        """Chrome trace events (chrome://tracing, ui.perfetto.dev): a process a rank, a thread a lane, microseconds."""
        tid = {lane: i for i, lane in enumerate(self.lanes)}
        events: list[dict[str, Any]] = []
        for rank in self.ranks:
            events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
            events += [
                {"ph": "M", "name": "thread_name", "pid": rank, "tid": i, "args": {"name": lane}}
                for lane, i in tid.items()
            ]
        origin = min((span.start for span in self.spans), default=0.0)
        for span in self.spans:
            args = {"turn": span.turn, "bytes": span.bytes}
            if span.source is not None:
                args["source"] = span.source
            events.append(
                {
                    "ph": "X",
                    "name": span.operation,
                    "cat": span.verb,
                    "pid": span.rank,
                    "tid": tid[span.lane],
                    "ts": (span.start - origin) * 1e6,
                    "dur": (span.end - span.start) * 1e6,
                    "args": args,
                }
            )
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"rung": self.rung}})


def _union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def _intersect(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if end > start:
            found.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return found


def _length(intervals: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


_ADAPTER = TypeAdapter(Trace)
