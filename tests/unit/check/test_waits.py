"""A wait that is missing, never ends or comes too late is found: a race, a deadlock."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

import tiny_plans as tiny
from gradsync.check import PlanError, check
from gradsync.engine.progress import DEEPEST, Clock, Progress
from gradsync.plan import Buffer, Local, Plan, Recv, Ref, Role, Send
from odd_plans import alone, many_groups
from plan_edits import changed, moved_to_front, setting
from refusals import marked_in_the_grid

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
SHARDED = tiny.sharded(2)


FAULTS = {
    "race": (changed(PLAN, setting("update", after=())), r"race on gradient\[.*'message0' and .* neither waits"),
    "race with the next turn": (
        changed(SHARDED, setting("forward:layer2", after_previous=())),
        r"race on parameter\[.*'gather:layer2' and 'forward:layer2' \(of the next turn\)",
    ),
    "race with a send that is only posted": (
        changed(SERVER, setting("forward", after_previous=("fetch",)), role=1),
        r"race on gradient\[.*'push'",
    ),
    "waits for a later operation": (
        changed(PLAN, moved_to_front("message3")),
        r"'message3' waits for 'ready:layer1', which the launch order puts after it: a deadlock",
    ),
    "waits for nobody": (changed(PLAN, setting("message0", after=("ready:x",))), r"waits for 'ready:x', which role"),
    "waits for nobody of the turn before": (
        changed(PLAN, setting("forward", after_previous=("x",))),
        r"waits for 'x', which role",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


IN_THE_GRID = {
    "race": ["ready:layer4", "message0"],
    "waits for a later operation": ["message3", "ready:layer1"],
}


@pytest.mark.parametrize("fault", IN_THE_GRID)
def test_the_message_ends_with_the_grid_and_marks_the_operation(fault):
    marked = marked_in_the_grid(FAULTS[fault][0])
    assert any(name in cell for name in IN_THE_GRID[fault] for cell in marked)


# Long rows, several lanes


def test_what_waits_for_nothing_runs_once_however_long_the_row_of_sends_before_it():
    plan = many_groups(2)
    assert len(plan.roles[0].flat) > DEEPEST
    events = Progress(plan, 3, Clock()).run().events
    times = Counter((event.rank, event.turn, event.step) for event in events)
    assert set(times.values()) == {1}
    assert len(times) == 2 * 3 * 120


def test_a_race_is_found_behind_thousands_of_operations_on_the_same_elements():
    """Everything touches one range: what came before the last write is looked at no more."""
    adds = [
        Local(name=f"add{i}", kernel="add", reads=(Ref("a", 0, 4),), writes=(Ref("b", 0, 4),)) for i in range(5_000)
    ]
    check(alone(*adds))
    beside = Local(name="beside", lane="other", kernel="copy", reads=(Ref("b", 3, 4),), writes=(Ref("a", 3, 4),))
    with pytest.raises(PlanError, match=r"race on [ab]\[3:...\]: 'add4999' and 'beside'"):
        check(alone(*adds, beside))
    late = dataclasses.replace(beside, after=("add4999",))
    with pytest.raises(PlanError, match=r"race on [ab]\[3:...\]: 'beside' and 'add0' \(of the next turn\)"):
        check(alone(*adds, late))
    first = dataclasses.replace(adds[0], after_previous=("beside",))
    check(alone(first, *adds[1:], late))


def test_a_reader_on_another_lane_is_waited_for_though_a_later_one_of_a_third_lane_is():
    a, b, c = (Ref(name, 0, 4) for name in "abc")
    more = (Buffer("c", 4, "float64", role="state"), Buffer("d", 4, "float64", role="state"))
    reads = (
        Local(name="one", lane="one", kernel="copy", reads=(a,), writes=(b,)),
        Local(name="two", lane="two", kernel="copy", reads=(a,), writes=(c,)),
    )
    write = Local(name="write", kernel="copy", reads=(Ref("d", 0, 4),), writes=(a,), after=("two",))
    with pytest.raises(PlanError, match=r"race on a\[0:...\]: 'one' and 'write'"):
        check(alone(*reads, write, buffers=more))
    both = dataclasses.replace(write, after=("one", "two"))
    with pytest.raises(PlanError, match=r"race on a\[0:...\]: 'write' and 'one' \(of the next turn\)"):
        check(alone(*reads, both, buffers=more))
    waiting = tuple(dataclasses.replace(op, after_previous=("write",)) for op in reads)
    check(alone(*waiting, both, buffers=more))


def test_two_sends_of_one_lane_are_both_waited_for():
    """A later send of the lane that has left says nothing about the one before it."""
    one = (
        Send(name="first", lane="network", to=1, tag=1, reads=(Ref("a", 0, 4),), after_previous=("write",)),
        Send(name="second", lane="network", to=1, tag=2, reads=(Ref("a", 0, 4),)),
        Local(name="write", kernel="copy", reads=(Ref("b", 0, 4),), writes=(Ref("a", 0, 4),), after=("second",)),
    )
    two = tuple(
        Recv(name=name, lane="network", source=0, tag=tag, writes=(Ref("b", 0, 4),))
        for tag, name in ((1, "first"), (2, "second"))
    )

    def of(*first_role: Any) -> Plan:
        return dataclasses.replace(
            alone(*first_role, ranks=2), roles=(Role("one", (0,), first_role), Role("two", (1,), two))
        )

    with pytest.raises(PlanError, match=r"race on a\[0:...\]: 'first' and 'write'"):
        check(of(*one))
    check(of(*one[:2], dataclasses.replace(one[2], after=("first", "second"))))
