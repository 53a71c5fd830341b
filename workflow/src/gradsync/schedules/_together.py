"""One lane of messages and the computation of a rank, which slow one another down: when each of both ends.

These are the times of the simulator (`engine/interference.py`): while both last, a message takes `communication` and
computation `computation` times as long. What waited for the other one starts a hand-over after it, what waited for the
one before it on its own lane starts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

NOTHING = -1  # is waited for


class Work(NamedTuple):
    """Computation that waits for a message, by its number."""

    seconds: float
    after: int = NOTHING


class Flight(NamedTuple):
    """A message; `after`: the work that it waits for; `updated`: the message whose update it waits for."""

    seconds: float
    computation: float
    communication: float
    after: int = NOTHING
    updated: int = NOTHING


def end(flights: Sequence[Flight], works: Sequence[Work], handover: float) -> float:
    """When all of the work is done; both begin at 0, each in order. Updates take no time but hand-overs."""
    flown, worked = [0.0] * len(flights), [0.0] * len(works)
    now = work_end = 0.0
    flight_end = -inf  # the lane is free before work of no seconds has ended, and waits for that
    sending, working = 0, 0  # the next of each, or the one under way
    flight_left = work_left = -1.0  # seconds alone; below 0: not under way
    while working < len(works):
        flight_start = work_start = inf
        if flight_left < 0.0 and sending < len(flights):
            flight = flights[sending]
            if flight.after < working and flight.updated < sending:
                ready = worked[flight.after] if flight.after != NOTHING else 0.0
                if flight.updated != NOTHING:
                    ready = max(ready, flown[flight.updated] + handover)
                flight_start = flight_end if ready <= flight_end else ready + handover
                if flight_start <= now:
                    flight_left = flight.seconds
        if work_left < 0.0 and works[working].after < sending:
            after = works[working].after
            ready = flown[after] if after != NOTHING else 0.0
            work_start = work_end if ready <= work_end else ready + handover
            if work_start <= now:
                work_left = works[working].seconds
        both = flight_left >= 0.0 and work_left > 0.0
        flight_pace = flights[sending].communication if both else 1.0
        work_pace = flights[sending].computation if both else 1.0
        until_flown = now + flight_left * flight_pace if flight_left >= 0.0 else max(flight_start, now)
        until_worked = now + work_left * work_pace if work_left >= 0.0 else max(work_start, now)
        until = min(until_flown, until_worked)
        passed, now = until - now, until
        if flight_left >= 0.0:
            flight_left = max(flight_left - passed / flight_pace, 0.0)
            if until == until_flown:
                flown[sending] = flight_end = now
                sending, flight_left = sending + 1, -1.0
        if work_left >= 0.0:
            work_left = max(work_left - passed / work_pace, 0.0)
            if until == until_worked:
                worked[working] = work_end = now
                working, work_left = working + 1, -1.0
    return now
