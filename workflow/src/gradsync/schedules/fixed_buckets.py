"""Constant buckets, as PyTorch DDP and Horovod merge gradients: by size alone, whatever the network.

DDP closes a bucket with the gradient that fills it; its first bucket is smaller so that communication starts early.
Horovod's tensor fusion never exceeds its threshold (`may_exceed` false). Differs from Horovod: Horovod's cycle time,
after which it sends a bucket that is not yet full, is left out, since it depends on a timer and not on the model.
"""

from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped

MIB = 1024 * 1024


def schedule(
    workload: Workload,
    cost: MessageCost,
    *,
    bucket_bytes: int = 25 * MIB,
    first_bucket_bytes: int = 1 * MIB,
    may_exceed: bool = True,
) -> tuple[Message, ...]:
    """Defaults are DDP's (`bucket_cap_mb`, `_DEFAULT_FIRST_BUCKET_BYTES`)."""
    if bucket_bytes < 1 or first_bucket_bytes < 1:
        raise InputError(
            f"fixed_buckets: bucket_bytes={bucket_bytes}, first_bucket_bytes={first_bucket_bytes}: at least 1"
        )
    lasts: list[int] = []
    filled = 0
    for i, layer in enumerate(workload.layers):
        limit = bucket_bytes if lasts else first_bucket_bytes
        if not may_exceed and filled and filled + layer.bytes > limit:
            lasts.append(i - 1)
            filled = 0
            limit = bucket_bytes
        filled += layer.bytes
        if filled >= limit:
            lasts.append(i)
            filled = 0
    if not lasts or lasts[-1] != len(workload.layers) - 1:
        lasts.append(len(workload.layers) - 1)
    return grouped(lasts)
