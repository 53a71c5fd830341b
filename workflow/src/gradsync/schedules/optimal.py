"""The exact merge optimum by dynamic programming, O(L^2) (not in the MG-WFBP paper, which claims it for Algorithm 1).

f[i] is the earliest finish of the communication of layers 0..i-1 (backward order) with a message ending at i-1:

    f[j] = min over i < j of  max(f[i], ready[j-1]) + T(m[i] + .. + m[j-1])

Finishing earlier never hurts, so the best plan of a prefix is part of a best plan of the whole, for every cost T.
"""

from __future__ import annotations

import numpy as np

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped


def schedule(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """Messages whose last one ends as early as any grouping of consecutive layers allows."""
    ready = workload.ready_seconds()
    total = np.concatenate([[0.0], np.cumsum(workload.sizes())])  # (layers + 1,)
    n = len(ready)
    f = np.zeros(n + 1)
    begin = np.zeros(n + 1, int)
    for j in range(1, n + 1):
        finish = np.maximum(f[:j], ready[j - 1]) + cost.seconds(total[j] - total[:j])
        # of equal finishes the one with the longest last message: fewer messages
        begin[j] = int(np.argmin(finish))
        f[j] = finish[begin[j]]
    lasts = []
    j = n
    while j > 0:
        lasts.append(j - 1)
        j = int(begin[j])
    return grouped(reversed(lasts))
