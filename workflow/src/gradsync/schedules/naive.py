"""Naive S-SGD: compute, then send every layer by itself, no overlap (MG-WFBP Fig. 1, Eq. 3)."""

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message


def schedule(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """t_iter = t_f + t_b + sum_l t_c[l]."""
    return tuple(Message(i, i, after_backward=True) for i in range(len(workload.layers)))
