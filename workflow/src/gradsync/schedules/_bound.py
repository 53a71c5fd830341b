"""A time before which no plan on so many lanes ends, by relaxations that the exact dynamic program solves.

It is of the cost that plans are made with, for the search to know when to stop; what a row of a table is held against
is in `engine/bounds.py`.
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

    `pieces`: as many as lanes where it is not given.

    With s of the lanes starting a message, the others transfer at min(capacity, lanes - s) in all, so for every share
    x from 0 to 1 the transfer plus x s is at most K(x) = max over s of min(capacity, lanes - s) + x s. Whatever the
    grouping, the messages that become ready from the i-th on hence need, after the i-th is ready, (transfer + x
    start-up) / K(x) seconds each, and there is no transfer in the first start-up. Which grouping has the least of it
    the dynamic program finds; the highest of these minima over x counts. The last message also takes its own time,
    alone, in as many pieces as help.
    """
    tables = [table(workload, cost, count) for count in range(1, (pieces or lanes) + 1)]
    return bound(workload.ready_seconds(), tables, lanes, min(lanes, capacity(cost)), shares)


def bound(ready: np.ndarray, tables: Sequence[Table], lanes: int, speed: float, shares: Sequence[float]) -> float:
    """The same, given the times of messages in 1, 2, .. pieces and the speed of all lanes together."""
    numbered = list(enumerate(tables, start=1))
    n = len(ready)
    inside = np.tril_indices(n + 1, -1)
    shortest = min(float(one.startup[inside].min()) for one in tables)
    alone = np.min(
        [one.startup[n, :n] + one.transfer[n, :n] * max(1.0, count / speed) for count, one in numbered], axis=0
    )
    found = 0.0
    for share in shares:
        most = max(min(speed, lanes - starting) + share * starting for starting in range(lanes + 1))
        # of all numbers of pieces the one that needs least
        seconds = np.min([count * (one.transfer + share * one.startup) for count, one in numbered], axis=0) / most
        before = np.maximum(exact(ready, seconds)[1][:n], ready[-1])
        ends = before + seconds[n, :n] + shortest * (1 - share * lanes / most)
        found = max(found, float(np.maximum(ends, ready[-1] + alone).min()))
    return found
