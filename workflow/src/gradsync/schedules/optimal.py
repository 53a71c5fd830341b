"""The exact merge optimum by dynamic programming, O(L^2) (not in the MG-WFBP paper, which claims it for Algorithm 1).

f[i] is the earliest finish of the communication of layers 0..i-1 (backward order) with a message ending at i-1:

    f[j] = min over i < j of  max(f[i], ready[j-1]) + T(m[i] + .. + m[j-1])

for every cost T. The dynamic program itself is `_groupings.exact_by_rows`, which other planners solve for other
seconds.
"""

from __future__ import annotations

import numpy as np

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped
from gradsync.schedules._groupings import exact_by_rows


def schedule(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """Messages whose last one ends as early as any grouping of consecutive layers allows."""
    total = np.concatenate([[0.0], np.cumsum(workload.sizes())])  # (layers + 1,)
    lasts, _ = exact_by_rows(workload.ready_seconds(), lambda j: cost.seconds(total[j] - total[:j]))
    return grouped(lasts)
