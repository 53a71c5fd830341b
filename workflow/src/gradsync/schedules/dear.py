"""DeAR's tensor fusion: tensors fill a buffer from the end of backward on until the next one does not fit.

Source: Zhang et al., "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce Pipelining", ICDCS
2023.

Its messages are reduce-scatters and all-gathers (`updates/decoupled.py`). Differs from the paper, whose fusion buffers
are tuned by Bayesian optimisation beginning with 25 MB: they have that size here, or the one that is given.
"""

from __future__ import annotations

from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped

UPDATE = "decoupled"


def schedule(workload: Workload, cost: MessageCost, *, bucket_bytes: int = 25 * 1024 * 1024) -> tuple[Message, ...]:
    """The last layer of each message, counted from the end of backward, where forward begins."""
    if bucket_bytes < 1:
        raise InputError(f"dear: bucket_bytes={bucket_bytes}: at least 1")
    lasts, filled = [len(workload.layers) - 1], 0
    for number in reversed(range(len(workload.layers))):
        size = workload.layers[number].bytes
        if filled and filled + size > bucket_bytes:
            lasts.append(number)
            filled = 0
        filled += size
    return grouped(reversed(lasts))
