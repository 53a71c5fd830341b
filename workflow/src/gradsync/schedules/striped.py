"""Each merged message is split over `lanes` lanes in equal pieces that leave together: a baseline.

Messages are one after the other, so the exact optimum (`optimal`) with the time of a split message groups the layers:
the time of one piece alone, its transfer slowed down by the contention of so many (`costs/contention.py`).
Not in a paper.
"""

from __future__ import annotations

from gradsync.costs import MessageCost
from gradsync.costs.contention import host_seconds
from gradsync.plan.workload import Workload
from gradsync.schedules import DEFAULT_LANE, Message
from gradsync.schedules._groupings import exact
from gradsync.schedules._plans import Instance, refuse_lanes
from gradsync.schedules._timed import rates


def schedule(workload: Workload, cost: MessageCost, *, lanes: int = 2) -> tuple[Message, ...]:
    """Raises InputError for fewer than one lane. A message has no more pieces than elements."""
    refuse_lanes("striped", lanes)
    return messages(Instance(workload, cost, lanes))


def messages(instance: Instance) -> tuple[Message, ...]:
    """The messages of `grouping`, in pieces on lanes."""
    lanes = instance.lanes
    split, first = [], 0
    for last in grouping(instance):
        pieces = instance.most_pieces(first, last)
        lane = [DEFAULT_LANE] if lanes == 1 else [f"{DEFAULT_LANE}{index}" for index in range(pieces)]
        split += [Message(first, last, lane[index], part=(index, pieces)) for index in range(pieces)]
        first = last + 1
    return tuple(split)


def grouping(instance: Instance) -> tuple[int, ...]:
    """Last layers of the merged messages."""
    lanes, piece = instance.lanes, instance.table(instance.lanes)
    transfer = piece.transfer / rates(instance.cost, lanes)[lanes]
    host = (lanes - 1) * host_seconds(instance.cost)  # the host starts the pieces in turn
    return exact(instance.workload.ready_seconds(), piece.startup + host + transfer)[0]
