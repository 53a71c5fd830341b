"""The best plan under the contention of the cost that a search finds, and a bound below which there is none.

A plan groups consecutive layers and splits each message into up to `lanes` equal pieces. Each piece leaves as soon as
its gradients are there and what was put on its lane before has ended. By the number of layers L:

- All plans on `lanes` = k lanes are tried if they are at most `EVERY` times `effort` (L up to 4 for k = 2): every
  grouping, number of pieces and lane, so that the result is the best there is.
- There are k (k + 1)^(L - 1) plans whose pieces leave in order, on the lane that is free first. Branch and bound looks
  through them if they are at most `IN_ORDER` times `effort` (L up to 9 for k = 2). On random nets of up to four layers,
  where both were tried, the best of all was better than the best of these in some percent of the nets, by less than
  2 %.
- Beyond, the best of the candidates of `kway` and of `striped` at several shares of start-up, after local search.

No search looks further than a plan within 0.01 % of the bound. `lower_bound` holds for every plan on so many lanes.
Not in a paper.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, kway, optimal, striped
from gradsync.schedules._bound import lower_bound
from gradsync.schedules._every import every, number
from gradsync.schedules._plans import BETTER, Instance, Plan, first_to_end, refuse_lanes
from gradsync.schedules._refined import refined
from gradsync.schedules._timed import Lanes

__all__ = ["lower_bound", "schedule"]

EVERY, IN_ORDER = 1100, 20_000  # plans
LAUNCHES = 2500  # messages that local search may time, from each of the plans that it begins with


def schedule(workload: Workload, cost: MessageCost, *, lanes: int = 2, effort: int = 1) -> tuple[Message, ...]:
    """`effort` times as many plans and messages are tried, and local search begins with so many of each kind of plan.

    Raises InputError for an effort or a number of lanes below 1.
    """
    refuse_lanes("searched", lanes)
    if effort < 1:
        raise InputError(f"searched: effort={effort}: at least 1")
    instance = Instance(workload, cost, lanes)
    unsplit = instance.of_whole_gradients()
    starts = [kway.best(unsplit), *instance.first(split_candidates(instance), effort)]
    if effort > 1:
        starts += unsplit.first(kway.candidates(unsplit), effort)
    if lanes * (lanes + 1) ** (instance.layers - 1) <= IN_ORDER * effort:
        plan = exhaustive(instance, instance.best(starts))
    else:
        plan = instance.best(refined(instance, start, LAUNCHES * effort) for start in starts)
    candidates = [optimal.alone(workload, cost), striped.messages(instance), instance.messages(plan)]
    if number(instance.layers, lanes) <= EVERY * effort:
        candidates += every(instance)
    return first_to_end(workload, cost, candidates)


def split_candidates(instance: Instance) -> Iterator[Plan]:
    """Plans with every message, and with the last ones alone, in as many pieces as there are lanes."""
    for lasts in (striped.grouping(instance), *instance.groupings()):
        first = [0, *(last + 1 for last in lasts)]
        split = tuple((last, instance.most_pieces(first[i], last)) for i, last in enumerate(lasts))
        yield split
        yield from ((*((last, 1) for last in lasts[:-k]), *split[-k:]) for k in (1, 2) if k < len(lasts))


def exhaustive(instance: Instance, start: Plan) -> Plan:
    """The best plan of all; `start` is one to begin with, so that most others need not be followed to their end."""
    n, ready = instance.layers, np.array(instance.ready)
    all_pieces = [
        (elements, instance.stages(elements))
        for first in range(n)
        for last in range(first, n)
        for pieces in range(1, instance.most_pieces(first, last) + 1)
        for elements in instance.elements(first, last, pieces)
    ]
    latency = min(alone.host + alone.latency for _, alone in all_pieces)
    # seconds of the link that an element takes at least
    link = min(alone.transfer / elements for elements, alone in all_pieces) / instance.speed
    left = (instance.position[n] - np.array(instance.position[:n])) * link
    # from layer i on, what is left is not ready before and ends at this time at the earliest
    earliest = np.maximum.accumulate((ready + latency + left)[::-1])[::-1]

    best, shortest = start, instance.seconds(start)
    stack: list[tuple[Plan, Lanes]] = [((), instance.idle)]
    while stack:
        plan, lanes = stack.pop()
        first = plan[-1][0] + 1 if plan else 0
        if first == n:
            seconds = lanes.drained()
            if seconds < shortest * BETTER:
                best, shortest = plan, seconds
            continue
        link_end = lanes.link.now + lanes.link.backlog() / instance.speed + left[first]  # if the link never idles
        if max(lanes.drained(), earliest[first], link_end) >= shortest * BETTER:
            continue
        for last in range(first, n):
            for pieces in range(1, instance.most_pieces(first, last) + 1):
                stack.append(((*plan, (last, pieces)), instance.sent(lanes, first, last, pieces)))
    return best
