"""PTO, the parallel tensor operator: each rank computes the ratios of some tensors, and gets those of the others.

Source: the cloud paper, Section 4.2, Eq. 12 to 14, for LARS and LAMB. What is dealt are whole tensors, since a norm
over pieces of one would need a reduction (CT-E20). The update itself is done by every rank, as it was.

Differs from the paper:
- it deals two layers to a GPU, so that some have none (CT-E21). Here ranks have as many tensors, up to one: the largest
  goes first, each to the rank with the fewest elements that has room (Graham, 1969);
- on axes of the plan's own (HiTopKComm) the ratios are gathered over one axis after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from gradsync.collectives import ALL_GATHER, POSTCONDITION
from gradsync.errors import InputError
from gradsync.kernels import KERNELS
from gradsync.plan import WORLD, Collective, Local, Plan, Ref, Role
from gradsync.schedules import DEFAULT_LANE
from gradsync.transforms._edits import Body, operations, with_bodies

TRANSFORM = "PTO"


def deal(plan: Plan) -> Plan:
    """The plan whose ratios are dealt to its ranks.

    Raises InputError for a plan without ratios of all tensors that one operation computes, and an update takes, on all
    ranks.
    """
    if len(plan.roles) > 1 or len(plan.roles[0].ranks) < plan.ranks:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan whose ranks all do the same")
    dealt = [op for op in operations(plan.roles[0].body) if isinstance(op, Local) and KERNELS[op.kernel].dealt]
    if not dealt:
        raise InputError(
            f"plan {plan.name!r}: {TRANSFORM} deals norms of tensors to ranks, and its update takes none: take "
            "optimizer lars or lamb"
        )
    (ratios, *others), tensors = dealt, len(plan.tensors)
    if others or ratios.writes[0].mine or ratios.writes[0][1:3] != (0, tensors):
        raise InputError(
            f"plan {plan.name!r}: {TRANSFORM} needs one operation that computes the ratios of all tensors; the plan "
            f"has: {', '.join(op.name for op in dealt)}: take update ssgd"
        )
    axes = tuple(axis.name for axis in reversed(plan.axes)) or (WORLD,)
    own = ratios.writes[0]._replace(mine=axes)
    order = _in_order(plan, own)
    place = {tensor: number for number, tensor in enumerate(order)}
    each = KERNELS[ratios.kernel].dealt

    def edited(role: Role, body: Body) -> Iterator[Any]:
        lanes = [op.lane for op in body if isinstance(op, Collective)]
        gathers = list(_gathers(own, lanes[-1] if lanes else DEFAULT_LANE, ratios))
        for op in body:
            if op is ratios:
                reads = tuple(ref for i in order for ref in ratios.reads[each * i : each * (i + 1)])
                yield dataclasses.replace(op, reads=reads, writes=(own,))
                yield from gathers
            elif any(ref.buffer == own.buffer for ref in getattr(op, "reads", ())):
                waits = tuple(gathers[-1].name if name == ratios.name else name for name in op.after)
                yield dataclasses.replace(op, after=waits, reads=tuple(_moved(ref, own, place) for ref in op.reads))
            else:
                yield op

    return with_bodies(plan, edited)


def _in_order(plan: Plan, own: Ref) -> list[int]:
    """The number of the tensor whose ratio lies in each place, of which ranks have their pieces."""
    bounds = [plan.mesh.bounds(own, rank) for rank in range(plan.ranks)]
    sizes = [tensor.stop - tensor.start for tensor in plan.tensors]
    hands = deal_out(sizes, [stop - start for start, stop in bounds])
    order = [0] * len(sizes)
    for (start, stop), hand in zip(bounds, hands, strict=True):
        order[start:stop] = hand
    return order


def deal_out(sizes: Sequence[int], room: Sequence[int]) -> list[list[int]]:
    """The numbers of what each gets, in rising order: the largest first, to whoever has least and has room for more."""
    hands: list[list[int]] = [[] for _ in room]
    # of those that have nothing, who has room for fewest comes first
    waiting = [(0, places, number) for number, places in enumerate(room) if places]
    heapify(waiting)
    for item in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        total, places, number = heappop(waiting)
        hands[number].append(item)
        if len(hands[number]) < places:
            heappush(waiting, (total + sizes[item], places, number))
    return [sorted(hand) for hand in hands]


def _gathers(own: Ref, lane: str, ratios: Local) -> Iterator[Collective]:
    """All-gathers of a range that is cut over axes: over the last of them first."""
    after = ratios.name
    for number in range(len(own.mine) - 1, -1, -1):
        held, axis = own._replace(mine=own.mine[:number]), own.mine[number]
        name = f"gather_{own.buffer}" if len(own.mine) == 1 else f"gather_{own.buffer}_{axis}"
        yield Collective(
            name=name,
            lane=lane,
            after=(after,),
            kind=ALL_GATHER,
            postcondition=POSTCONDITION[ALL_GATHER],
            over=axis,
            reads=(held,),
            writes=(held,),
        )
        after = name


def _moved(ref: Ref, own: Ref, place: dict[int, int]) -> Ref:
    """Where the ratio of a tensor lies now."""
    return ref if ref.buffer != own.buffer else ref._replace(start=place[ref.start], stop=place[ref.start] + 1)
