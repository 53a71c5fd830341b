"""WFBP: each gradient is sent as soon as it is ready and the one before is through (MG-WFBP Fig. 2, Eq. 7, 8)."""

from gradsync.costs import MessageCost
from gradsync.schedules import Message, grouped
from gradsync.workload import Workload


def schedule(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """tau_c[l] = max(tau_c[l+1] + t_c[l+1], tau_b[l] + t_b[l])."""
    return grouped(range(len(workload.layers)))
