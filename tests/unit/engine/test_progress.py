"""The event loop: what takes no time, what waits for what, when it happens, and what a plan that is stuck leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

import tiny_plans as tiny
from gradsync.engine.interference import InterferenceProgress
from gradsync.engine.progress import DEEPEST, Clock, Cost, Outcome, Progress
from gradsync.plan import Collective, Local, Need, Plan, Ready, Recv, RecvAny, Ref, Repeat, Reply, Role, Send, SharedAdd

EVERY = tiny.every_kind()


class Timed(Clock):
    """Seconds of operations by name; of a message, its transfer."""

    def __init__(self, seconds: dict[str, float], handover: float = 0.0, latency: float = 0.0):
        self.seconds, self.between, self.latency = seconds, handover, latency

    def local(self, rank: int, operation: Any) -> float:
        return self.seconds.get(operation.name, 0.0)

    def message(self, operation: Any) -> Cost:
        return Cost(self.latency, self.seconds.get(operation.name, 0.0))

    def handover(self) -> float:
        return self.between


def plan_of(*bodies: Sequence[Any]) -> Plan:
    """A role a rank."""
    whole = tiny.synchronous(len(bodies))
    roles = tuple(Role(f"rank{rank}", (rank,), tuple(body)) for rank, body in enumerate(bodies))
    return dataclasses.replace(whole, roles=roles)


def times(plan: Plan, outcome: Outcome) -> dict[tuple, tuple[float, float]]:
    """(rank, turn, operation) -> (start, end)."""
    return {
        (each.rank, each.turn, plan.role_of[each.rank].flat[each.step].name): (each.start, each.end)
        for each in outcome.events
    }


def spell(name: str, **how: Any) -> Local:
    return Local(name=name, kernel="join", **how)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("loop", [Progress, InterferenceProgress])
def test_without_a_clock_nothing_takes_time_and_everything_happens(name, loop):
    plan = EVERY[name]
    outcome = loop(plan, 3, Clock()).run()
    assert outcome.stuck == []
    assert {(each.start, each.end) for each in outcome.events} == {(0.0, 0.0)}
    done = {(each.rank, each.turn, each.step) for each in outcome.events}
    assert len(done) == len(outcome.events)
    for role in plan.roles:
        turns = 0 if role.until_stopped else 3
        expected = {(rank, turn, i) for rank in role.ranks for turn in range(turns) for i in range(len(role.flat))}
        assert expected <= done


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("loop", [Progress, InterferenceProgress])
def test_a_run_that_paused_is_as_one_that_did_not(name, loop):
    plan = EVERY[name]
    names = sorted({op.name for role in plan.roles for op in role.flat})
    clock = Timed({name: 1.0 + 0.37 * i for i, name in enumerate(names)}, handover=0.01, latency=0.2)
    run = loop(plan, 9, clock)
    paused = [run.run_until_through(turns) for turns in (1, 2, 4)]
    assert paused == sorted(set(paused))
    so_far = run.so_far()
    ended, once = run.run(), loop(plan, 4, clock).run()
    assert ended.stuck == once.stuck == []
    assert ended.events == once.events
    before = {event[:4] for event in once.events if event.start < paused[-1]}
    assert {event[:4] for event in so_far if event.start < paused[-1]} == before
    assert {event for event in so_far if event.end < inf} <= set(ended.events)
    assert max(event.turn for event in so_far if not plan.role_of[event.rank].until_stopped) == 3


@pytest.mark.parametrize("loop", [Progress, InterferenceProgress])
def test_computation_and_messages_leave_one_another_alone_unless_the_clock_says_otherwise(loop):
    body = (spell("compute"), Collective(name="sum", lane="network"))
    plan = plan_of(body, body)
    spans = times(plan, loop(plan, 1, Timed({"compute": 4.0, "sum": 3.0})).run())
    assert spans[0, 0, "compute"] == (0.0, 4.0)
    assert spans[1, 0, "sum"] == (0.0, 3.0)


def test_what_a_rank_sends_and_what_it_receives_do_not_share():
    """Two messages out of rank 0 share its way out; those to and from rank 2 share nothing."""
    sends = {0: [(1, "a"), (2, "b")], 2: [(0, "c")]}
    receives = {1: [(0, "a")], 2: [(0, "b")], 0: [(2, "c")]}
    ref = (Ref("gradient", 0, 1),)
    bodies: list[list] = [[], [], []]
    for rank, each in sends.items():
        bodies[rank] += [Send(name=f"send {n}", lane=f"out {n}", to=to, tag=ord(n), reads=ref) for to, n in each]
    for rank, each in receives.items():
        bodies[rank] += [Recv(name=n, lane=f"in {n}", source=source, tag=ord(n), writes=ref) for source, n in each]
    plan = plan_of(*bodies)
    spans = times(plan, Progress(plan, 1, Timed(dict.fromkeys(["send a", "send b", "send c"], 2.0))).run())
    ends = {name: end for (_, _, name), (_, end) in spans.items() if not name.startswith("send")}
    assert ends == {"a": 4.0, "b": 4.0, "c": 2.0}


def test_a_message_shares_the_way_in_of_its_receiver_with_the_collectives_of_that_rank():
    """Ranks 0 and 1 sum for 2 s; rank 2 sends to rank 1, which shares nothing but the way in: both take 4 s."""
    ref = (Ref("gradient", 0, 1),)
    both = [Collective(name="sum", lane="sum", ranks=(0, 1))]
    plan = plan_of(
        both,
        [*both, Recv(name="recv", lane="in", source=2, writes=ref)],
        [Send(name="send", lane="out", to=1, reads=ref)],
    )
    spans = times(plan, Progress(plan, 1, Timed({"sum": 2.0, "send": 2.0})).run())
    assert (spans[0, 0, "sum"][1], spans[1, 0, "sum"][1], spans[1, 0, "recv"][1]) == (4.0, 4.0, 4.0)


def test_a_handover_is_paid_between_lanes_and_only_there():
    body = (spell("first"), spell("second"), spell("beside", lane="other", after=("first",)))
    plan = plan_of(body)
    spans = times(plan, Progress(plan, 1, Timed({"first": 1.0, "second": 1.0, "beside": 1.0}, handover=0.25)).run())
    assert spans == {(0, 0, "first"): (0.0, 1.0), (0, 0, "second"): (1.0, 2.0), (0, 0, "beside"): (1.25, 2.25)}


def test_what_waits_for_the_turn_before_waits_for_nothing_in_the_first():
    body = (spell("a", after_previous=("b",)), spell("b", lane="other"))
    plan = plan_of(body)
    spans = times(plan, Progress(plan, 3, Timed({"a": 1.0, "b": 2.0})).run())
    assert [spans[0, turn, "a"][0] for turn in range(3)] == [0.0, 2.0, 4.0]
    assert [spans[0, turn, "b"][0] for turn in range(3)] == [0.0, 2.0, 4.0]


def test_a_row_longer_than_calls_may_nest_is_run():
    plan = plan_of([spell(f"step{i}") for i in range(40 * DEEPEST)])
    outcome = Progress(plan, 2, Clock()).run()
    assert outcome.stuck == []
    assert [each.step for each in outcome.events] == 2 * list(range(40 * DEEPEST))


def test_locked_adds_to_one_buffer_take_turns_and_unlocked_ones_do_not():
    def ends(locked: bool) -> list[float]:
        body = [SharedAdd(name="push", reads=(Ref("gradient", 0, 1),), writes=(Ref("centre", 0, 1),), locked=locked)]
        plan = plan_of(body, body, body)
        return [each.end for each in Progress(plan, 1, Timed({"push": 2.0})).run().events]

    assert ends(True) == [2.0, 4.0, 6.0]
    assert ends(False) == [2.0, 2.0, 2.0]


def test_adds_to_different_buffers_wait_for_no_lock_of_the_other():
    bodies = [
        [SharedAdd(name="push", reads=(Ref("gradient", 0, 1),), writes=(Ref(buffer, 0, 1),))] for buffer in ("a", "b")
    ]
    plan = plan_of(*bodies)
    assert [each.end for each in Progress(plan, 1, Timed({"push": 2.0})).run().events] == [2.0, 2.0]


def test_with_rendezvous_a_send_ends_with_its_receive_and_without_once_the_message_is_there():
    ref = (Ref("gradient", 0, 1),)
    plan = plan_of(
        [Send(name="send", lane="out", to=1, reads=ref)],
        [spell("busy"), Recv(name="recv", lane="in", source=0, after=("busy",), writes=ref)],
    )
    for rendezvous, end in ((False, 3.0), (True, 5.0)):
        spans = times(plan, Progress(plan, 1, Timed({"busy": 5.0, "send": 3.0}), rendezvous=rendezvous).run())
        assert spans[0, 0, "send"] == (0.0, end)
        assert spans[1, 0, "recv"] == (5.0, 5.0)


def serving(workers: int = 2) -> Plan:
    """Rank 0 takes a message of each worker and answers it; worker w computes for so long before it pushes."""
    ref = (Ref("gradient", 0, 1),)
    take = RecvAny(name="take", lane="n", sources=tuple(range(1, workers + 1)), tag=1, writes=ref)
    serve = Repeat(name="serve", body=(take, Reply(name="give", lane="n", to="take", tag=2, reads=ref)))
    bodies = [
        [
            spell(f"busy{worker}"),
            Send(name="push", lane="n", to=0, tag=1, after=(f"busy{worker}",), reads=ref),
            Recv(name="fetch", lane="n", source=0, tag=2, writes=ref),
        ]
        for worker in range(1, workers + 1)
    ]
    return plan_of([serve], *bodies)


def test_who_comes_first_is_served_first_unless_it_is_told_who_did():
    plan, clock = serving(), Timed({"busy1": 5.0, "busy2": 1.0})
    first = Progress(plan, 1, clock).run()
    assert [each.source for each in first.events if each.source and each.rank == 0] == [2, 1]
    assert first.stuck == []
    outcome = Progress(plan, 1, clock, arrivals={(0, 0, "take"): 1, (0, 1, "take"): 2}).run()
    assert [each.source for each in outcome.events if each.source and each.rank == 0] == [1, 2]
    ends = times(plan, outcome)
    assert (ends[1, 0, "fetch"][1], ends[2, 0, "fetch"][1]) == (5.0, 5.0)


def test_what_never_ends_is_told_turn_by_turn_and_nothing_of_who_serves():
    ref = (Ref("gradient", 0, 1),)
    body = [spell("busy"), Recv(name="recv", lane="in", source=1, writes=ref)]
    plan = plan_of(body, [spell("idle")])
    outcome = Progress(plan, 2, Clock()).run()
    # the next turn of a lane that is free goes on
    assert outcome.stuck == [(0, 0, 1), (0, 1, 1)]
    assert len(outcome.events) == 4
    lonely = serving(2)
    (_, *others) = lonely.roles
    silent = dataclasses.replace(others[1], body=others[1].body[:1] + others[1].body[2:])  # never pushes
    plan = dataclasses.replace(lonely, roles=(lonely.roles[0], others[0], silent))
    assert Progress(plan, 1, Clock()).run().stuck == [(2, 0, 1)]
    waiting = dataclasses.replace(silent, body=(*silent.body, spell("later", after=("fetch",))))
    plan = dataclasses.replace(plan, roles=(*plan.roles[:2], waiting))
    outcome = Progress(plan, 1, Clock()).run()
    assert (
        len(outcome.events) == 3 + 3
    )  # as many as the workers have operations, but those of the server are among them
    assert outcome.stuck == [(2, 0, 1), (2, 0, 2)]


def test_a_collective_ends_for_all_its_ranks_at_once_after_the_last_has_come():
    body = [spell("busy0"), Collective(name="sum", lane="n", after=("busy0",), ranks=(0, 2))]
    last = [spell("busy2"), Collective(name="sum", lane="n", after=("busy2",), ranks=(0, 2))]
    plan = plan_of(body, [Need(name="forward"), Ready(name="ready", tensor=None)], last)
    spans = times(plan, Progress(plan, 1, Timed({"busy0": 1.0, "busy2": 4.0, "sum": 2.0}, latency=0.5)).run())
    assert spans[0, 0, "sum"] == (1.0, 6.5)
    assert spans[2, 0, "sum"] == (4.0, 6.5)
