"""A time before which no plan on so many lanes ends, by relaxations that the exact dynamic program solves.

It holds for the cost that plans are made with, and tells the search when to stop. The bounds that rows of tables are
held against are in `engine/bounds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradsync.costs import MessageCost
from gradsync.costs.contention import capacity
from gradsync.plan.workload import Workload
from gradsync.schedules._groupings import Table, exact, table

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def lower_bound(
    workload: Workload,
    cost: MessageCost,
    lanes: int = 2,
    *,
    pieces: int | None = None,
    shares: Sequence[float] = SHARES,
) -> float:
    """Seconds from the start of forward; no messages of consecutive layers in up to `pieces` pieces each end before.

    `pieces`: None for as many as lanes.

    With s of the lanes starting a message, the others transfer at min(capacity, lanes - s) in all, so for every share
    x from 0 to 1 the transfer plus x s is at most K(x) = max over s of min(capacity, lanes - s) + x s. Whatever the
    grouping, the messages that become ready from the i-th on hence need, after the i-th is ready, (transfer + x
    start-up) / K(x) seconds each, and there is no transfer in the first start-up. The dynamic program finds the
    grouping with the least of it; the highest of these minima over x counts. The last message also takes its own time,
    alone, in as many pieces as help.
    """
    tables = [table(workload, cost, count) for count in range(1, (pieces or lanes) + 1)]
    return bound(workload.ready_seconds(), tables, lanes, min(lanes, capacity(cost)), shares)


def bound(ready: np.ndarray, tables: Sequence[Table], lanes: int, speed: float, shares: Sequence[float]) -> float:
    """The same from the times of messages in 1, 2, .. pieces and the speed of all lanes together."""
    numbered = list(enumerate(tables, start=1))
    n = len(ready)
    inside = np.tril_indices(n + 1, -1)
    shortest_startup = min(float(times.startup[inside].min()) for times in tables)
    alone = np.min(
        [times.startup[n, :n] + times.transfer[n, :n] * max(1.0, count / speed) for count, times in numbered], axis=0
    )
    highest = 0.0
    for share in shares:
        most = max(min(speed, lanes - starting) + share * starting for starting in range(lanes + 1))  # K(x)
        # of all numbers of pieces the one that needs least
        seconds = np.min([count * (times.transfer + share * times.startup) for count, times in numbered], axis=0) / most
        before = np.maximum(exact(ready, seconds)[1][:n], ready[-1])
        ends = before + seconds[n, :n] + shortest_startup * (1 - share * lanes / most)
        highest = max(highest, float(np.maximum(ends, ready[-1] + alone).min()))
    return highest
