"""Groupings of consecutive layers by the exact dynamic program, for any seconds of a message of layers i..j-1.

Finishing earlier never hurts, so the best grouping of a prefix is part of a best grouping of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload


class Table(NamedTuple):
    """Of a message of layers i..j-1, at [j, i] for i < j; other entries mean nothing.  # (layers + 1, layers + 1)"""

    startup: np.ndarray
    transfer: np.ndarray
    bytes: np.ndarray


def table(workload: Workload, cost: MessageCost, pieces: int = 1) -> Table:
    """Start-up, transfer seconds and bytes of every message, or of one of so many equal pieces of it."""
    total = np.concatenate([[0.0], np.cumsum(workload.sizes())])
    sizes = np.maximum(total[:, None] - total[None, :], 1.0) / pieces
    startup = np.broadcast_to(np.asarray(cost.startup_seconds(sizes), float), sizes.shape)
    return Table(startup, np.asarray(cost.seconds(sizes), float) - startup, sizes)


def exact(ready: np.ndarray, seconds: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """As `exact_by_rows`, of seconds that are all known.  # seconds: (layers + 1, layers + 1)"""
    return exact_by_rows(ready, lambda j: seconds[j, :j])


def exact_by_rows(ready: np.ndarray, seconds: Callable[[int], np.ndarray]) -> tuple[tuple[int, ...], np.ndarray]:
    """Last layers of the messages that end first one after the other, and when those of each prefix end.

    `seconds(j)` are those of a message of layers i..j-1 for each i < j. O(L^2):

        f[j] = min over i < j of  max(f[i], ready[j-1]) + seconds(j)[i]
    """
    n = len(ready)
    f = np.zeros(n + 1)
    begin = [0] * (n + 1)
    for j in range(1, n + 1):
        finish = np.maximum(f[:j], ready[j - 1])
        finish += seconds(j)
        # of equal finishes the one with the longest last message: fewer messages
        begin[j] = int(finish.argmin())
        f[j] = finish[begin[j]]
    lasts = []
    j = n
    while j > 0:
        lasts.append(j - 1)
        j = begin[j]
    return tuple(reversed(lasts)), f


def fewest(ready: np.ndarray, seconds: np.ndarray, latest: float) -> tuple[int, ...]:
    """Last layers of the messages that end by `latest`: of all groupings one with the fewest messages.

    With k messages, f_k[j] = min over i < j of  max(f_(k-1)[i], ready[j-1]) + seconds[j, i]; of these only an f that
    fewer messages do not reach can be of use, since finishing earlier never hurts. O(L^2) for each message.
    `seconds` of messages that there are none of is infinite.  # (layers + 1, layers + 1)

    Raises ValueError if no messages end by then.
    """
    n = len(ready)
    best = np.full(n + 1, np.inf)  # by as many messages, or fewer
    best[0] = 0.0
    at, finish = np.zeros(1, int), np.zeros(1)  # where so many messages end earlier than fewer do, and when
    begins: list[np.ndarray] = []
    while len(at):
        ends = np.maximum(finish[None, :], ready[:, None])
        ends += seconds[1:, at]
        begin = ends.argmin(axis=1)
        begins.append(np.concatenate([[0], at[begin]]))
        f = np.concatenate([[np.inf], ends[np.arange(n), begin]])
        if f[n] <= latest:
            lasts, j = [n - 1], n
            for of_count in reversed(begins[1:]):
                j = int(of_count[j])
                lasts.append(j - 1)
            return tuple(reversed(lasts))
        sooner = (f < best) & (f <= latest)
        sooner[n] = False
        best = np.where(sooner, f, best)
        at, finish = np.flatnonzero(sooner), f[sooner]
    raise ValueError(f"no messages end by {latest:g}")
