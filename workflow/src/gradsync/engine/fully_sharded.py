"""An iteration of FSDP2, simulated from the blocks of a model: what `fully_shard` sends and waits for is no plan's.

Source: PyTorch's `torch/distributed/fsdp/_fully_shard`; Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully
Sharded Data Parallel", VLDB 2023. The model is sharded as `runtime/peers/fsdp2.py` does it: each block, and the whole
with what is in no block.

This is FSDP2 on GPUs. All messages go through one queue. A block is gathered while the block before the last that was
gathered is computed, and is dropped after its forward unless it is kept; backward gathers it once more while the block
behind it is computed. The gradients of a block are scattered once all are there, which waits for the scatter of the
block before. The whole is gathered before forward begins and scattered after backward. The next forward waits for the
update, which waits for all scatters.

On processors, where a call of Gloo returns when the message is through, it is not simulated: an iteration takes 1.8 to
2 times what messages and computation, one after the other, would take.

Differs from PyTorch: copies into messages and out of them take nothing, tensors are not padded to a multiple of the
ranks, messages and computation do not slow one another down, and a block that forward uses twice is gathered once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import NamedTuple

from gradsync.costs import MessageCost
from gradsync.costs.half import halves
from gradsync.errors import InputError
from gradsync.plan.workload import Workload

WHOLE = ""  # the unit of what is in no block


class Iteration(NamedTuple):
    """Seconds from one update to the next, those of computation, and how many messages a rank takes part in."""

    seconds: float
    computation_seconds: float
    messages: int


class Segment(NamedTuple):
    """Seconds for which one unit's parameters are computed with."""

    unit: str
    seconds: float


def iteration(
    workload: Workload,
    cost: MessageCost,
    *,
    kept: bool,
    update_seconds: float,
    broadcast_seconds: float = 0.0,
) -> Iteration:
    """An iteration of a rank.

    `kept`: blocks are kept from forward to backward. `update_seconds`: of the rank's own part of the parameters.
    `broadcast_seconds`: of statistics of batch normalisation, before forward.

    Raises InputError for a workload that doesn't tell the blocks.
    """
    sizes = units(workload)
    of_halves = halves(cost)
    gathers = {unit: float(of_halves["all_gather"].seconds(size)) for unit, size in sizes.items()}
    scatters = {unit: float(of_halves["reduce_scatter"].seconds(size)) for unit, size in sizes.items()}
    forward, backward = _forward(workload), _backward(workload)
    computation = sum(each.seconds for each in (*forward, *backward)) + update_seconds
    again = 0 if kept else sum(unit != WHOLE for unit in sizes)
    messages = 2 * len(sizes) + again + bool(broadcast_seconds)
    queue = _Queue(gathers, scatters)
    queue.forward(forward)
    queue.backward(backward, kept)
    seconds = broadcast_seconds + max(queue.computed, queue.sent) + update_seconds
    return Iteration(seconds, computation, messages)


def units(workload: Workload) -> dict[str, int]:
    """Bytes of the parameters of each unit, the whole's first; raises InputError if the blocks are not told."""
    if any(layer.block is None for layer in workload.layers):
        raise InputError(
            f"workload {workload.name!r} does not tell the blocks that FSDP2 shards: gradsync measure layers and "
            "measure operations do, if all parameters are trained and blocks share none"
        )
    sizes: dict[str, int] = {}
    for layer in sorted(workload.layers, key=lambda layer: layer.block != WHOLE):
        sizes[str(layer.block)] = sizes.get(str(layer.block), 0) + layer.bytes
    return sizes


def _forward(workload: Workload) -> list[Segment]:
    seconds = workload.forward_by_layer()
    order = workload.forward_order()
    return _joined(Segment(str(workload.layers[number].block), float(seconds[number])) for number in order)


def _backward(workload: Workload) -> list[Segment]:
    return _joined(Segment(str(layer.block), layer.backward_seconds) for layer in workload.layers)


def _joined(segments: Iterable[Segment]) -> list[Segment]:
    """Neighbours of one unit as one."""
    together = groupby(segments, key=lambda each: each.unit)
    return [Segment(unit, sum(each.seconds for each in group)) for unit, group in together]


class _Queue:
    """The queue of computation and that of messages; times are seconds since the update."""

    def __init__(self, gathers: dict[str, float], scatters: dict[str, float]):
        self.gathers, self.scatters = gathers, scatters
        self.computed = self.sent = 0.0  # until when either is busy
        self.taken = [0.0, 0.0]  # when the last two gathered units could be computed with
        self.gathered: dict[str, float] = {}  # when the gather of a unit has ended

    def forward(self, segments: list[Segment]) -> None:
        """Units are gathered in the order in which forward needs them, the whole first."""
        if WHOLE in self.gathers:
            self._gather(WHOLE, self.taken[-2])
            self._take(WHOLE)
        for unit, seconds in segments:
            if unit not in self.gathered:
                self._gather(unit, self.taken[-2])
                self._take(unit)
            self.computed += seconds

    def backward(self, segments: list[Segment], kept: bool) -> None:
        """Blocks are gathered once more unless they are kept, each one ahead of its backward; all are scattered."""
        last_segment = {unit: number for number, (unit, _) in enumerate(segments)}
        blocks = list(dict.fromkeys(unit for unit, _ in segments if unit != WHOLE))
        following = dict(pairwise(blocks))
        scattered = 0.0
        if not kept:
            self.gathered.clear()
        begun = set[str]()
        for number, (unit, seconds) in enumerate(segments):
            if unit != WHOLE and unit not in begun and not kept:
                if unit not in self.gathered:
                    self._gather(unit, self.taken[-1])
                self._take(unit)
                if unit in following:
                    self._gather(following[unit], self.taken[-1])
            begun.add(unit)
            self.computed += seconds
            if unit != WHOLE and last_segment[unit] == number:
                self.computed = max(self.computed, scattered)
                scattered = self._scatter(unit)
        if WHOLE in self.scatters:
            self.computed = max(self.computed, scattered)
            self._scatter(WHOLE)

    def _gather(self, unit: str, earliest: float) -> None:
        self.sent = self.gathered[unit] = max(self.sent, earliest) + self.gathers[unit]

    def _take(self, unit: str) -> None:
        """Computation goes on with the unit as soon as it is there."""
        self.computed = max(self.computed, self.gathered[unit])
        self.taken.append(self.computed)

    def _scatter(self, unit: str) -> float:
        self.sent = max(self.sent, self.computed) + self.scatters[unit]
        return self.sent
