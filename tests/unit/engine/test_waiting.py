"""What of a span was waiting for another rank, and what was communication."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from test_vocabulary import load_of

import tiny_plans as tiny
from changed_plans import bases
from gradsync.costs import Linear, Network
from gradsync.engine.simulate import simulate
from gradsync.engine.waiting import Stamps, stamps, waited
from gradsync.plan import Collective, Role
from gradsync.plan.trace import Span, Trace
from gradsync.schedules import Message

NETWORK = Network({kind: Linear(1.0, 0.0) for kind in ("all_reduce", "broadcast", "send")})


def by_hand(plan, rows: dict[int, list[tuple[str, float, float, int | None]]]) -> list[Stamps]:
    """rank -> (operation, start, end, source) of one turn."""
    of_ranks = []
    for rank in range(plan.ranks):
        verbs = {op.name: op for op in plan.role_of[rank].flat}
        spans = [
            Span(rank, 0, name, verbs[name].verb, verbs[name].lane, start, end, 0, source)
            for name, start, end, source in rows[rank]
        ]
        of_ranks.append(stamps(plan, rank, spans, 0, 1))
    return of_ranks


def seconds(plan, waits, rank: int, name: str) -> float:
    place = [op.name for op in plan.role_of[rank].flat].index(name)
    return float(waits[rank][0, place])


def test_an_all_reduce_waits_for_the_last_rank_to_come():
    plan = tiny.synchronous(3)
    waits = waited(
        plan,
        by_hand(
            plan,
            {
                0: [("message0", 1.0, 6.0, None), ("message1", 6.0, 7.0, None)],
                1: [("message0", 4.5, 6.0, None), ("message1", 6.0, 7.0, None)],
                2: [("message0", 2.0, 6.0, None), ("message1", 6.5, 7.0, None)],
            },
        ),
    )
    assert [seconds(plan, waits, rank, "message0") for rank in range(3)] == [3.5, 0.0, 2.5]
    assert [seconds(plan, waits, rank, "message1") for rank in range(3)] == [0.5, 0.5, 0.0]


def test_a_broadcast_waits_for_its_root_alone():
    (role,) = tiny.synchronous(2).roles
    body = tuple(
        dataclasses.replace(op, kind="broadcast", postcondition="copy", root=1) if isinstance(op, Collective) else op
        for op in role.body
    )
    plan = dataclasses.replace(tiny.synchronous(2), roles=(dataclasses.replace(role, body=body),))
    rows = {0: [("message0", 1.0, 6.0, None)], 1: [("message0", 3.0, 4.0, None)]}
    waits = waited(plan, by_hand(plan, rows))
    assert [seconds(plan, waits, rank, "message0") for rank in range(2)] == [2.0, 0.0]


def test_a_receive_waits_for_its_sender_whoever_that_was():
    plan = tiny.async_server(2)
    rows = {
        0: [("take", 0.0, 5.0, 2), ("give", 6.0, 6.5, None)],
        1: [],
        2: [("push", 4.0, 5.0, None), ("fetch", 4.5, 8.0, 0)],
    }
    waits = waited(plan, by_hand(plan, rows))
    assert seconds(plan, waits, 0, "take") == 4.0
    assert seconds(plan, waits, 2, "fetch") == 1.5  # until the server came to its reply


def test_what_is_not_known_is_not_called_waiting():
    plan = tiny.async_server(2)
    rows = {0: [("take", 0.0, 5.0, 2), ("take", 5.0, 6.0, 2)][:1], 1: [], 2: []}
    waits = waited(plan, by_hand(plan, rows))
    assert not np.isnan(waits[0]).any()
    assert seconds(plan, waits, 0, "take") == 0.0


def test_waiting_is_never_longer_than_the_span():
    plan = tiny.synchronous(2)
    waits = waited(plan, by_hand(plan, {0: [("message0", 0.0, 1.0, None)], 1: [("message0", 9.0, 10.0, None)]}))
    assert seconds(plan, waits, 0, "message0") == 1.0


def test_a_simulated_straggler_makes_others_wait_and_nothing_else():
    """Rank 1 computes 3 s longer; the one message, after backward, takes a second."""
    whole = tiny.synchronous(2, messages=[Message(0, 3)])
    roles = tuple(Role(f"worker {rank}", (rank,), whole.roles[0].body) for rank in range(2))
    plan = dataclasses.replace(whole, roles=roles)
    quick = load_of(plan)
    slow = quick.model_copy(update={"forward_seconds": 4.0})
    trace = simulate(plan, {0: quick, 1: slow}, NETWORK, turns=3)
    one, other = (trace.waiting_seconds(rank) for rank in (0, 1))
    assert one == pytest.approx(3.0)
    assert other == 0.0
    # what is left of the messages is exposed alike on both
    assert trace.exposed_communication_seconds(0) == pytest.approx(trace.exposed_communication_seconds(1))
    even = simulate(plan, quick, NETWORK, turns=3)
    assert even.waiting_seconds(0) == 0.0
    assert even.exposed_communication_seconds(0) == pytest.approx(trace.exposed_communication_seconds(0))


def test_waiting_beside_computation_or_another_message_is_hidden():
    lanes = [
        Span(0, 0, "forward", "need", "compute", 0.0, 2.0),
        Span(0, 0, "message0", "collective", "network", 1.0, 5.0, waited=3.0),  # waits until 4
        Span(0, 0, "message1", "collective", "network1", 3.0, 3.5),
        Span(0, 1, "forward", "need", "compute", 6.0, 7.0),
    ]
    trace = Trace("by hand", "simulated", 2, tuple(lanes))
    assert trace.waiting_seconds() == pytest.approx(4.0 - 2.0 - 0.5)
    assert trace.exposed_communication_seconds() == pytest.approx(0.5 + 1.0)
    assert Trace.from_json(trace.to_json()) == trace
    events = [event for event in json.loads(trace.to_chrome())["traceEvents"] if event["ph"] == "X"]
    assert [event["args"].get("waited_us") for event in events] == [None, 3e6, None, None]


@pytest.mark.parametrize("name", ["served", "exchange", "two channels"])
def test_every_receive_of_a_simulated_plan_finds_its_send(name):
    plan = bases.every()[name]
    trace = simulate(plan, load_of(plan), NETWORK, turns=3)
    receives = [span for span in trace.spans if span.verb in ("recv", "recv_any")]
    assert receives
    # nothing takes longer than the message once its sender has come
    assert all(span.end - span.start - span.waited <= 1.0 + 1e-9 for span in receives)
