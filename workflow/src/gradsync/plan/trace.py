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
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.plan import COMPUTE

VERSION = 3
NOT_STEADY = "not steady"  # what the note of such a trace begins with


class Span(NamedTuple):
    """One operation of one rank in one turn, [start, end) in seconds; a receive has a `source`.

    The first `waited` seconds of a message were spent waiting for other ranks (`engine/waiting.py`), not with
    communication.
    """

    rank: int
    turn: int
    operation: str
    verb: str
    lane: str
    start: float
    end: float
    bytes: int = 0
    source: int | None = None
    waited: float = 0.0


@dataclass(frozen=True)
class Trace:
    """Spans in order of completion; `turns` of the loop. A symmetric plan's trace may hold rank 0 alone.

    Times of an iteration are means over the `period` turns before turn `end_turn` begins (None: before the last one).
    A turn has so many `iterations`.
    `steady`: whether a simulation repeats itself with that period (`engine/steady.py`); None if nobody looked.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    rung: str
    turns: int
    spans: tuple[Span, ...]
    provenance: dict[str, str] = dataclasses.field(default_factory=dict)
    steady: bool | None = None
    period: int = 1
    end_turn: int | None = None
    iterations: int = 1
    version: int = VERSION

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that the trace holds."""
        return tuple(sorted({span.rank for span in self.spans}))

    def of(self, rank: int, turn: int | None = None) -> list[Span]:
        """Spans of one rank (of one turn) in order of start."""
        spans = [span for span in self.spans if span.rank == rank and turn in (None, span.turn)]
        return sorted(spans, key=lambda span: (span.start, span.end))

    def turn_starts(self, rank: int = 0) -> list[float]:
        """When each turn begins on `rank`: the start of its first forward (else of its first operation)."""
        starts: dict[int, float] = {}
        forward = {span.turn for span in self.spans if span.rank == rank and span.verb == "need"}
        for span in self.spans:
            if span.rank == rank and (span.verb == "need" or span.turn not in forward):
                starts[span.turn] = min(span.start, starts.get(span.turn, span.start))
        return [starts[turn] for turn in sorted(starts)]

    @property
    def note(self) -> str:
        """What must be said wherever its times are shown; empty if they are those of a steady state."""
        if self.steady is not False:
            return ""
        return f"{NOT_STEADY} after {self.turns} turns: mean of the last {self.period}"

    def iteration_seconds(self, rank: int = 0) -> float:
        """Mean seconds of an iteration over one period of turns."""
        start, end = self.window(rank)
        return (end - start) / (self.period * self.iterations)

    def windows(self, rank: int = 0) -> list[tuple[float, float]]:
        """Every whole turn of `rank`."""
        return list(pairwise(self.turn_starts(rank)))

    def window(self, rank: int = 0) -> tuple[float, float]:
        """The period of `rank` over which times are means; raises InputError if the trace holds no whole one."""
        starts = self.turn_starts(rank)
        end = len(starts) - 1 if self.end_turn is None else min(self.end_turn, len(starts) - 1)
        if end < self.period:
            raise InputError(
                f"trace {self.name!r}: {len(starts)} turn(s) of rank {rank}; a period needs {self.period + 1}"
            )
        return starts[end - self.period], starts[end]

    def busy(self, rank: int, lanes: Iterable[str], window: tuple[float, float]) -> list[tuple[float, float]]:
        """When the spans of `lanes` do anything inside `window`, as disjoint intervals; waiting counts as nothing."""
        wanted = set(lanes)
        return _union(
            (max(span.start + span.waited, window[0]), min(span.end, window[1]))
            for span in self.spans
            if span.rank == rank and span.lane in wanted and span.end > window[0] and span.start < window[1]
        )

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Lanes in order of first use, `compute` first."""
        names = dict.fromkeys(span.lane for span in self.spans)
        return tuple(sorted(names, key=lambda name: name != COMPUTE))

    @cached_property
    def computing(self) -> tuple[str, ...]:
        """`compute`, and lanes on which nothing is sent, as that of updates beside it."""
        sending = {span.lane for span in self.spans if span.verb not in ("need", "ready", "local")}
        return tuple(lane for lane in self.lanes if lane == COMPUTE or lane not in sending)

    def exposed_communication_seconds(self, rank: int = 0, window: tuple[float, float] | None = None) -> float:
        """Seconds in which a message is under way and nothing is computed (the paper's t_c^no).

        Per iteration, as the mean over one period; with `window`, in all of it.
        """
        within, iterations = self._within(rank, window)
        compute = self.busy(rank, self.computing, within)
        communication = self.busy(rank, [lane for lane in self.lanes if lane not in self.computing], within)
        return (_length(communication) - _length(_intersect(communication, compute))) / iterations

    def exposed_by_operation(self, rank: int = 0) -> dict[str, float]:
        """Seconds per iteration in which each message is under way and nothing is computed; operation -> seconds.

        Of several that are under way at once, each counts.
        """
        window, iterations = self._within(rank, None)
        compute = self.busy(rank, self.computing, window)
        exposed: dict[str, float] = {}
        for span in self.spans:
            if span.rank == rank and span.lane not in self.computing:
                under_way = _union([(max(span.start + span.waited, window[0]), min(span.end, window[1]))])
                alone = _length(under_way) - _length(_intersect(under_way, compute))
                exposed[span.operation] = exposed.get(span.operation, 0.0) + alone / iterations
        return {name: seconds for name, seconds in exposed.items() if seconds > 0}

    def waiting_seconds(self, rank: int = 0, window: tuple[float, float] | None = None) -> float:
        """Seconds in which `rank` waits for others in a message, and neither computes nor communicates meanwhile.

        Per iteration, as the mean over one period; with `window`, in all of it.
        """
        (low, high), iterations = self._within(rank, window)
        waiting = _union(
            (max(span.start, low), min(span.start + span.waited, high))
            for span in self.spans
            if span.rank == rank and span.waited > 0 and span.start + span.waited > low and span.start < high
        )
        return (_length(waiting) - _length(_intersect(waiting, self.busy(rank, self.lanes, (low, high))))) / iterations

    def computation_seconds(self, rank: int = 0, window: tuple[float, float] | None = None) -> float:
        """Seconds in which something is computed, slowed by messages or not; per iteration, or in all of `window`."""
        within, iterations = self._within(rank, window)
        return _length(self.busy(rank, self.computing, within)) / iterations

    def overlap_seconds(self, first: str, second: str, rank: int = 0) -> float:
        """Seconds per iteration in which both lanes are busy."""
        within, iterations = self._within(rank, None)
        return _length(_intersect(self.busy(rank, [first], within), self.busy(rank, [second], within))) / iterations

    def _within(self, rank: int, window: tuple[float, float] | None) -> tuple[tuple[float, float], int]:
        """The window to look at, and the number of iterations to divide by."""
        return (window, 1) if window else (self.window(rank), self.period * self.iterations)

    def to_json(self) -> str:
        """JSON that `from_json` reads."""
        return json.dumps(_ADAPTER.dump_python(self, mode="json"))

    @staticmethod
    def from_json(text: str, where: str = "trace") -> Trace:
        """Parse and validate; raises InputError that names the place."""
        reading.parse_json(text, f"{where}: not a trace")
        try:
            trace = _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise InputError(f"{where}: not a trace: {first_problem(error)}") from None
        if trace.version != VERSION:
            raise InputError(f"{where}: trace version {trace.version}; this gradsync reads version {VERSION}")
        if not 1 <= trace.period <= (trace.turns if trace.end_turn is None else trace.end_turn):
            raise InputError(f"{where}: not a trace: no period of {trace.period} turns in it")
        return trace

    def to_chrome(self) -> str:
        """Chrome trace events (chrome://tracing, ui.perfetto.dev): a process per rank, a thread per lane."""
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
            args: dict[str, Any] = {"turn": span.turn, "bytes": span.bytes}
            if span.source is not None:
                args["source"] = span.source
            if span.waited:
                args["waited_us"] = span.waited * 1e6
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
    common, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if end > start:
            common.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def _length(intervals: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


_ADAPTER = TypeAdapter(Trace)
