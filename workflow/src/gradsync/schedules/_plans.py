"""Messages that leave in order, each on the first free lane: what a search over groupings and pieces needs of them.

A plan is a tuple of (last layer, pieces) of each message; the pieces leave one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property

import numpy as np

from gradsync.costs import MessageCost
from gradsync.costs.contention import capacity
from gradsync.errors import InputError
from gradsync.plan import DTYPE_BYTES, piece
from gradsync.plan.workload import Workload
from gradsync.schedules import DEFAULT_LANE, Message
from gradsync.schedules._bound import bound
from gradsync.schedules._groupings import Table, exact, table
from gradsync.schedules._timed import Lanes, Stages, end_seconds, idle, stages

NEAR = 1e-4  # of the lower bound
# On several lanes, the transfer of others hides all of a start-up, a part of it, or nothing; first what is often best
SHARES_OF_STARTUP = (0.2, 0.7, 0.0, 1.0, 0.1, 0.35, 0.5, 1.4, 2.0, 3.0)
BETTER = 1.0 - 1e-12  # less than this times the best is better: rounding is not

Plan = tuple[tuple[int, int], ...]


def refuse_lanes(name: str, lanes: int) -> None:
    """Raises InputError below 1."""
    if lanes < 1:
        raise InputError(f"{name}: lanes={lanes}: at least 1")


def whole(lasts: Iterable[int]) -> Plan:
    """Messages in one piece each."""
    return tuple((last, 1) for last in lasts)


class Instance:
    """A workload and a cost, with what plans on so many lanes take; `launches` counts the messages that were timed."""

    def __init__(self, workload: Workload, cost: MessageCost, lanes: int):
        self.workload, self.cost, self.lanes, self.pieces = workload, cost, lanes, lanes
        self.layers, self.launches = len(workload.layers), 0
        self.ready: list[float] = workload.ready_seconds().tolist()
        self.width = DTYPE_BYTES[workload.unit]
        elements = np.cumsum([layer.bytes // self.width for layer in workload.layers])
        self.position: list[int] = [0, *elements.tolist()]
        self.speed = min(lanes, capacity(cost))  # of all lanes together
        self.tables: dict[int, Table] = {}
        self.stages_of: dict[int, Stages] = {}  # by number of elements
        self.grouping_of: dict[float, tuple[int, ...]] = {}  # by share of start-up
        self.idle: Lanes = idle(cost, lanes)

    def of_whole_gradients(self) -> Instance:
        """The same, but no message may be split."""
        other = copy(self)
        other.pieces = 1
        return other

    def table(self, pieces: int = 1) -> Table:
        """Start-up and transfer of every message, or of one of so many pieces of it."""
        if pieces not in self.tables:
            self.tables[pieces] = table(self.workload, self.cost, pieces)
        return self.tables[pieces]

    def most_pieces(self, first: int, last: int) -> int:
        """One for each lane if messages may be split at all, and none without an element."""
        return min(self.pieces, self.position[last + 1] - self.position[first])

    def stages(self, elements: int) -> Stages:
        of_message = self.stages_of.get(elements)
        if of_message is None:
            (of_message,) = stages(self.cost, np.array([elements * self.width], float))
            self.stages_of[elements] = of_message
        return of_message

    def groupings(self) -> Iterator[tuple[int, ...]]:
        """The best ones for a link with the speed of all lanes together, if a share of each start-up counts."""
        costs = self.table()
        transfer = costs.transfer / self.speed
        for share in SHARES_OF_STARTUP:
            if share not in self.grouping_of:
                seconds = share * costs.startup + transfer
                self.grouping_of[share] = exact(self.workload.ready_seconds(), seconds)[0]
            yield self.grouping_of[share]

    def elements(self, first: int, last: int, pieces: int) -> list[int]:
        """Of each of so many pieces of layers first..last."""
        start, stop = self.position[first], self.position[last + 1]
        bounds = (piece(start, stop, index, pieces) for index in range(pieces))
        return [end - begin for begin, end in bounds]

    def sent(self, lanes: Lanes, first: int, last: int, pieces: int) -> Lanes:
        """The lanes once layers first..last have left in so many pieces."""
        for elements in self.elements(first, last, pieces):
            lanes, _ = lanes.launched(self.ready[last], self.stages(elements))
        self.launches += pieces
        return lanes

    def states(self, plan: Plan, begin: int = 0, before: Sequence[Lanes] = ()) -> list[Lanes]:
        """The lanes before each message and at the end, if they are as in `before` at messages 0..begin."""
        lanes = list(before[: begin + 1]) or [self.idle]
        for number in range(begin, len(plan)):
            first = plan[number - 1][0] + 1 if number else 0
            lanes.append(self.sent(lanes[-1], first, *plan[number]))
        return lanes

    def seconds(self, plan: Plan) -> float:
        """End of the last message."""
        return self.states(plan)[-1].drained()

    def messages(self, plan: Plan) -> tuple[Message, ...]:
        """With the lanes that they take."""
        lanes, first = self.idle, 0
        on_lanes: list[tuple[Message, int]] = []
        for last, pieces in plan:
            for index, elements in enumerate(self.elements(first, last, pieces)):
                lanes, lane = lanes.launched(self.ready[last], self.stages(elements))
                on_lanes.append((Message(first, last, part=(index, pieces)), lane))
            first = last + 1
        if len({lane for _, lane in on_lanes}) == 1:
            return tuple(message for message, _ in on_lanes)
        return tuple(message._replace(lane=f"{DEFAULT_LANE}{lane}") for message, lane in on_lanes)

    def cut(self, plan: Plan, numbers: Iterable[int]) -> Plan:
        """The plan with these messages cut at layer borders into one of about equal bytes for each lane."""
        to_cut = set(numbers)
        messages: list[tuple[int, int]] = []
        first = 0
        for number, (last, pieces) in enumerate(plan):
            if number in to_cut:
                start, stop = self.position[first], self.position[last + 1]
                borders = set()
                for k in range(1, self.lanes):
                    even = start + (stop - start) * k / self.lanes
                    inside = self.position[first + 1 : last + 1]
                    if inside:
                        nearest = int(np.abs(np.array(inside) - even).argmin())
                        borders.add(first + nearest)
                messages += [(border, 1) for border in sorted(borders)]
            messages.append((last, pieces))
            first = last + 1
        return tuple(messages)

    @cached_property
    def enough(self) -> float:
        """A plan that ends by then is so near the lower bound that no search for a better one is worth its time."""
        tables = [self.table(count) for count in range(1, self.pieces + 1)]
        return bound(self.workload.ready_seconds(), tables, self.lanes, self.speed, (0.0, 1.0)) * (1 + NEAR)

    def best(self, plans: Iterable[Plan]) -> Plan:
        """The one that ends first, of equals the first; or the first that ends soon enough."""
        return self.first(plans, 1)[0]

    def first(self, plans: Iterable[Plan], count: int) -> list[Plan]:
        """So many that end first, soonest first; those after one that ends soon enough are not looked at."""
        ends: dict[Plan, float] = {}
        for plan in plans:
            if plan not in ends:
                ends[plan] = self.seconds(plan)
            if ends[plan] <= self.enough:
                break
        shortest = min(ends.values())
        # plans whose ends differ by rounding alone are equal
        return sorted(ends, key=lambda plan: round(ends[plan] / shortest / (1 - BETTER)) if shortest else 0)[:count]


def first_to_end(
    workload: Workload, cost: MessageCost, candidates: Iterable[tuple[Message, ...]]
) -> tuple[Message, ...]:
    """Of several lists of messages the one that ends first under contention; of equals the first."""
    best: tuple[Message, ...] = ()
    shortest = np.inf
    for messages in candidates:
        seconds = end_seconds(workload, cost, messages)
        if seconds < shortest * BETTER:
            best, shortest = messages, seconds
    return best
