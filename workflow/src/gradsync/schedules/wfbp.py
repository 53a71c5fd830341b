"""WFBP: each gradient is sent as soon as it is ready and the one before is through (MG-WFBP Fig. 2, Eq. 7, 8).

Beyond the paper: messages may be dealt over several `lanes` in turn, so that as many travel at the same time. When
executed, a lane has a thread and connections of its own.
"""

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, dealt, grouped


def schedule(workload: Workload, cost: MessageCost, *, lanes: int = 1) -> tuple[Message, ...]:
    """On one lane, tau_c[l] = max(tau_c[l+1] + t_c[l+1], tau_b[l] + t_b[l])."""
    return dealt(grouped(range(len(workload.layers))), lanes)
