"""The exact merge optimum by dynamic programming, O(L^2) (not in the MG-WFBP paper, which claims it for Algorithm 1).

f[i] is the earliest finish of the communication of layers 0..i-1 (backward order) with a message ending at i-1:

    f[j] = min over i < j of  max(f[i], ready[j-1]) + T(m[i] + .. + m[j-1])

for every cost T. The dynamic program itself is `_groupings.exact`, which other planners solve for other seconds.

Of all groupings that end so early it is one with the fewest messages (`_groupings.fewest`), for up to MOST layers. For
each message takes its host's time (`costs/contention.py`), whether it is hidden or not. On one lane that time is a part
of T, which the end of the last message has in it; what it takes from computation beside hidden messages no simulation
counts, and the fewest messages take least of it, also if nothing is known of the host.

If the cost knows how messages and computation slow one another down (`costs/beside.py`), the end of the last message
is the one under that slow-down, as simulated, and messages are held until backward has ended if that is faster. No
dynamic program is exact then. For up to `_slowed.EVERY` layers all groupings are tried, and the result is exact;
beyond, it is what a local search finds. It never ends later than the messages of `naive`, `wfbp`, `mgwfbp`, `single`,
`fixed_buckets`, of the exact optimum without slow-down and of a sweep of constant buckets, with which the search
begins, and never before the end of that optimum without slow-down.
"""

from __future__ import annotations

import numpy as np

from gradsync.costs import MessageCost
from gradsync.costs.beside import interference
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, fixed_buckets, grouped, mgwfbp, single, wfbp
from gradsync.schedules._groupings import exact, exact_by_rows, fewest
from gradsync.schedules._neighbours import Lasts
from gradsync.schedules._slowed import SAME, Slowed, first_to_end

MOST = 3000  # layers: the table of all messages of more is large


def schedule(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """Messages whose last one ends as early as any grouping of consecutive layers allows, and as few as can be."""
    slowing = interference(cost)
    if slowing is None or len(workload.layers) > MOST:
        return alone(workload, cost)
    seconds = _table(workload, cost)
    lasts, end = _alone(workload, seconds)
    others = (planner.schedule(workload, cost) for planner in (mgwfbp, wfbp, single, fixed_buckets))
    beginnings = [lasts, *(tuple(message.last for message in messages) for messages in others)]
    net = Slowed(workload, seconds, slowing)
    return net.messages(first_to_end(net, beginnings, end))


def alone(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """The same if computation and messages leave one another alone, whatever the cost knows of that."""
    if len(workload.layers) <= MOST:
        return grouped(_alone(workload, _table(workload, cost))[0])
    total = np.concatenate([[0.0], np.cumsum(workload.sizes())])  # (layers + 1,)
    return grouped(exact_by_rows(workload.ready_seconds(), lambda j: cost.seconds(total[j] - total[:j]))[0])


def _alone(workload: Workload, seconds: np.ndarray) -> tuple[Lasts, float]:
    """The fewest messages that end first, and when."""
    ready = workload.ready_seconds()
    end = float(exact(ready, seconds)[1][-1])
    return fewest(ready, seconds, end * (1 + SAME)), end


def _table(workload: Workload, cost: MessageCost) -> np.ndarray:
    """T of a message of layers i..j-1 at [j, i]; infinite for i >= j.  # (layers + 1, layers + 1)"""
    total = np.concatenate([[0.0], np.cumsum(workload.sizes())])
    seconds = np.full((len(total), len(total)), np.inf)
    messages = np.tril_indices(len(total), -1)
    seconds[messages] = cost.seconds(total[messages[0]] - total[messages[1]])
    return seconds
