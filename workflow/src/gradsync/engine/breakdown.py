"""The parts of a worker's time, as Table 3 of the EASGD and KNL paper (SC17, Section 6.1.2) divides it.

Each moment of a worker belongs to one part, the first of `PARTS` that goes on in it. So a message behind forward and
backward takes no time, and what is left for messages is exposed. The shares of a worker add up to 1, and the shares of
a plan are the mean over its workers. Two more parts of the paper, reading the data and initialisation, come before the
iterations; the paper's GPU is a worker here, its CPU a master or memory that workers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gradsync.engine.masters import masters, workers
from gradsync.plan import COMPUTE, Collective, Plan, RecvAny
from gradsync.plan.trace import Span

Interval = tuple[float, float]
FOR_BACKWARD, DATA, WORKER_UPDATE, MASTER_UPDATE, AMONG_WORKERS, WITH_MASTER, OTHER = PARTS = (
    "for_backward",
    "host_worker_data",
    "worker_update",
    "master_update",
    "worker_worker_parameters",
    "host_worker_parameters",
    "other",
)
MESSAGES = (DATA, AMONG_WORKERS, WITH_MASTER)  # what the paper sums up as communication


def seconds(
    plan: Plan,
    spans: Iterable[Span],
    windows: Mapping[int, Interval],
    samples: Mapping[int, Sequence[Interval]],
) -> dict[str, float]:
    """Seconds of each part, all workers together, inside each worker's window; all times are on one clock.

    `samples` has the intervals in which a worker gets its next batch.
    """
    by_rank: dict[int, list[Span]] = {rank: [] for rank in range(plan.ranks)}
    for span in spans:
        by_rank[span.rank].append(span)
    updating = [span[5:7] for rank in masters(plan) for span in by_rank[rank] if span.verb == "local"]
    total = dict.fromkeys(PARTS, 0.0)
    for rank in workers(plan):
        between = _between_workers(plan, rank)
        parts: dict[str, list[Interval]] = {part: [] for part in PARTS}
        for span in by_rank[rank]:
            parts[_part(span, between)].append((span.start, span.end))
        parts[DATA], parts[MASTER_UPDATE], parts[OTHER] = list(samples.get(rank, ())), updating, [windows[rank]]
        covered: list[Interval] = []
        before = 0.0
        for part in PARTS:
            covered = _union([*covered, *_inside(parts[part], windows[rank])])
            now = sum(end - start for start, end in covered)
            total[part] += now - before
            before = now
    return total


def slowest(plan: Plan, spans: Iterable[Span]) -> float:
    """Seconds of forward and backward of the worker that takes longest in each turn, all turns together."""
    computing: dict[int, dict[int, float]] = {}
    for span in spans:
        if span.rank in workers(plan) and _part(span, set()) == FOR_BACKWARD:
            of_turn = computing.setdefault(span.turn, {})
            of_turn[span.rank] = of_turn.get(span.rank, 0.0) + span.end - span.start
    return sum(max(of_turn.values()) for of_turn in computing.values())


def _part(span: Span, between: set[str]) -> str:
    if span.verb in ("need", "ready"):
        return FOR_BACKWARD
    if span.verb == "local":
        return WORKER_UPDATE
    return AMONG_WORKERS if span.operation in between else WITH_MASTER


def _between_workers(plan: Plan, rank: int) -> set[str]:
    """The messages of a worker in which no master takes part."""
    hosts = set(masters(plan))

    def peers(op: object) -> set[int]:
        if isinstance(op, Collective):
            return set(plan.group(op, rank))
        if isinstance(op, RecvAny):
            return set(op.sources)
        return {peer for peer in (getattr(op, "to", None), getattr(op, "source", None)) if isinstance(peer, int)}

    operations = [op for op in plan.role_of[rank].flat if op.lane != COMPUTE or op.verb != "local"]
    return {op.name for op in operations if peers(op) and not peers(op) & hosts}


def _inside(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    clipped = [(max(start, window[0]), min(end, window[1])) for start, end in intervals]
    return [(start, end) for start, end in clipped if end > start]


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
