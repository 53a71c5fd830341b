"""Checks that a launch fits into memory: what its contenders and the oracle hold is counted before they are made.

Parameters, gradients, momentum and what else a plan keeps are known to the byte. What layers compute on the way comes
on top and is not counted, so that nothing is refused that would have fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psutil
import torch

from gradsync.clusters import chip
from gradsync.configuration.peers import Kind
from gradsync.errors import InputError
from gradsync.plan import DTYPE_BYTES, PASSING, Plan
from gradsync.runtime.devices import Device
from gradsync.runtime.hosts import everyones, gathered_by_node

# In multiples of the parameters: what stock DDP holds besides what the optimizer keeps (parameters, gradients, its
# buckets), and what the oracle holds besides the ranks' own buffers (its model's, two of gradients, those of the plan's
# ranks).
STOCK, ORACLE = 3.0, 4


def of_peer(kind: Kind, ranks: int, kept: int = 1) -> float:
    """What a peer holds on a rank, in multiples of the parameters; its optimizer keeps so many numbers of each.

    With FSDP2 that is a part of parameters, gradients and what is kept, and whole parameters: gathered, or to evaluate.
    """
    return {"ddp": STOCK + kept, "zero": STOCK + kept / ranks, "fsdp2": (2 + kept) / ranks + 1}[kind]


class Need(NamedTuple):
    """Bytes that a rank's plans and its peers hold, and that comparing plans with the oracle takes.

    `against` is for every rank, `oracle` for rank 0 on top. Both are freed before the others are made.
    """

    plans: float
    stock: float
    against: float = 0.0
    oracle: float = 0.0

    def peak(self, root: bool) -> float:
        """The peak of a rank; `root`: of rank 0."""
        return max(self.plans + self.stock, self.against + (self.oracle if root else 0.0))


def needed(
    parameters: int, plans: Sequence[Plan], peers: float, *, references: bool, conformance: int, width: int
) -> Need:
    """What a launch holds that trains a model of so many parameters; `width`: bytes of a number for the oracle.

    `peers`: what all of them hold, in multiples of the parameters (`of_peer`). `conformance` is the number of steps for
    which every plan is compared with the oracle. On a rank, the plans of a launch share buffers that hold nothing from
    turn to turn.
    """
    stock = 4.0 * parameters * peers
    if not plans:
        return Need(0.0, stock)
    kept = [_bytes(plan, scratch=False) for plan in plans]
    scratch = max(_bytes(plan, scratch=True) for plan in plans)
    held = sum(kept) + (max(map(_of_reference, plans)) if references else 0.0) + scratch
    if not conformance:
        return Need(held, stock)
    one, ranks = width / 4 * (max(kept) + scratch), plans[0].ranks
    passes = max(plan.passes for plan in plans)
    gradients = ranks * (conformance * passes + 1)  # of each rank and pass, and the last ones
    return Need(held, stock, one, ranks * one + width * parameters * (gradients + ORACLE))


def _bytes(plan: Plan, scratch: bool) -> float:
    """What the rank with the largest shards holds."""
    roles = {buffer.role for buffer in plan.buffers if (buffer.role in PASSING) is scratch}
    return float(plan.most_bytes(*roles)) if roles else 0.0


def _of_reference(plan: Plan) -> float:
    """What each rank keeps if it trains for itself, with what it would have a shard of."""
    kept = (buffer for buffer in plan.buffers if buffer.role not in PASSING)
    return float(sum(buffer.elements * DTYPE_BYTES[buffer.dtype] for buffer in kept))


def refuse(model: str, need: Need, rank: int, device: Device) -> None:
    """Raises InputError on all ranks if a machine, or a GPU, has less memory than is needed; collective."""
    if (gpu_free := device.free_bytes()) is not None:
        free = gpu_free
        # the oracle's values are the host's, its model is not
        held, where = max(need.plans + need.stock, need.against), f" on the GPU of rank {rank}"
        by_node = gathered_by_node((held, free, where))
        lacking = [each for node in by_node.values() for each in node if each[0] > each[1]]
    else:
        free = float(psutil.virtual_memory().available)
        by_node = gathered_by_node((need.peak(rank == 0), free, ""))
        whole = [(sum(each[0] for each in node), min(each[1] for each in node), "") for node in by_node.values()]
        lacking = [each for each in whole if each[0] > each[1]]
    if not lacking:
        return
    wanted, free, where = max(lacking)
    raise InputError(
        f"model {model!r} needs about {wanted / 1e9:.1f} GB of memory besides what its layers compute, "
        f"{free / 1e9:.1f} GB are free{where}. A rank holds {need.plans / 1e9:.1f} GB for "
        f"its plans (parameters, gradients, momentum) and {need.stock / 1e9:.1f} GB for its peers; before, "
        f"{need.against / 1e9:.1f} GB while plans are held against the oracle, which takes {need.oracle / 1e9:.1f} GB: "
        "take fewer plans, peers or ranks, --conformance 0, or a smaller model"
    )


def refuse_copies(plan: Plan, samples: Any) -> None:
    """Raises InputError on all ranks if as many copies as there are ranks don't fit into this machine; collective.

    A copy is that of the parameters, and of the `samples` that the ranks hold in memory.
    """
    held = sum(value.nbytes for value in vars(samples).values() if isinstance(value, torch.Tensor))
    weights = plan.most_bytes("parameter")
    free = min(everyones(psutil.virtual_memory().available))
    chip.refuse_copies(plan.ranks, weights, held, free, f"plan {plan.name!r}")
