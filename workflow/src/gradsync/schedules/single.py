"""Single-layer communication: one packed message after backward (MG-WFBP Section V-B, there "SyncEASGD")."""

from gradsync.costs import MessageCost
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped


def schedule(workload: Workload, cost: MessageCost) -> tuple[Message, ...]:
    """t_iter = t_f + t_b + a + b sum_l m[l] (implied by the paper's prose)."""
    return grouped([len(workload.layers) - 1])
