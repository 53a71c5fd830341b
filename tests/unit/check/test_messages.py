"""Messages between ranks whose two ends, order or partners don't fit are found; so are servers that never end."""

from __future__ import annotations

import dataclasses

import pytest

import tiny_plans as tiny
from gradsync.check import PlanError, check
from gradsync.plan import Buffer, Collective, Local, Plan, Recv, Ref, Role, Send, Tensor
from plan_edits import appended, changed, index_of, inside, setting, setting_inside, without
from refusals import marked_in_the_grid

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
SWEEP = tiny.easgd_round_robin(2)
SHARDED = tiny.sharded(2)
SPARSE = tiny.sparse(2)
GROUPS = tiny.in_groups(2, 2)
TWO_LEVEL = tiny.two_level()


def sent_for_nothing() -> Plan:
    """Rank 0 sends its parameters after each update, and nobody receives them."""
    plan = tiny.uneven_roles(2)
    sent = Send(name="sent", lane="network", to=1, reads=(Ref("parameter", 0, 1),), after=("update",))
    return changed(changed(plan, appended(sent)), setting("update", after_previous=("sent",)))


def pushed_on_two_lanes(body):
    again = dataclasses.replace(body[index_of(body, "push")], name="push again", lane="other", after=("centre",))
    body.insert(index_of(body, "push") + 1, again)
    setting("update", after=("centre", "push", "push again"))(body)


@inside
def one_more_receive(body):
    more = Recv(name="more", lane="network", source=2, tag=1, writes=(Ref("incoming", 0, 13),), after=("apply",))
    body.insert(2, dataclasses.replace(more, after_previous=("give",)))


@inside
def served_twice(body):
    """One after the other, each with its reply."""
    take, apply, give = body
    body.append(dataclasses.replace(take, name="take2", after=("give",)))
    body.append(dataclasses.replace(apply, name="apply2", after=("take2",), after_previous=()))
    body.append(dataclasses.replace(give, name="give2", to="take2", after=("apply2",)))
    body[:2] = (
        dataclasses.replace(take, after_previous=("give2",)),
        dataclasses.replace(apply, after_previous=("give2",)),
    )


@inside
def served_for_nothing(body):
    body.append(Local(name="rest", lane="idle", kernel="join"))


@inside
def served_together(body):
    ref = (Ref("gradient", 0, 13),)
    body.append(Collective(name="sum", lane="network", reads=ref, writes=ref, after=("apply",)))


@inside
def replied_too_early(body):
    setting("give", after=(), lane="other")(body)
    setting("apply", after_previous=("give",), after=("take", "give"))(body)
    body.sort(key=lambda op: ["take", "give", "apply"].index(op.name))


def in_two_ways(then=("message3",), **values) -> Plan:
    """One of the sums is something else on rank 1, whose update waits for what `then` names."""
    (role,) = PLAN.roles
    body = list(role.body)
    setting("message1", **values)(body)
    setting("update", after=then)(body)
    return dataclasses.replace(PLAN, roles=(Role("one", (0,), role.body), Role("other", (1,), tuple(body))))


def gathered_in_two_ways(**values) -> Plan:
    """Pieces that are gathered in place on rank 0, and as `values` say on rank 1: not both are rounds of transfers."""
    here = (Ref("one", 0, 4),)
    gather = Collective(
        name="gather", kind="all_gather", postcondition="gather", lane="network", reads=here, writes=here
    )
    bodies = (gather,), (dataclasses.replace(gather, **values),)
    roles = tuple(Role(name, (rank,), bodies[rank]) for rank, name in enumerate(("one", "two")))
    buffers = tuple(Buffer(name, 4, "float64", role="state") for name in ("one", "aside"))
    return Plan("gathered", 2, (), buffers, roles)


def of_two_types() -> Plan:
    """An all-reduce of float64 on rank 0 and of float32 on rank 1."""
    roles = []
    for rank, name in enumerate(("one", "two")):
        ref = (Ref(name, 0, 4),)
        roles.append(Role(name, (rank,), (Collective(name="sum", lane="network", reads=ref, writes=ref),)))
    buffers = (Buffer("one", 4, "float64", role="state"), Buffer("two", 4, "float32", role="state"))
    return Plan("types", 2, (), buffers, tuple(roles))


def out_of_order(waits: bool) -> Plan:
    """Rank 0 sends tag 1, then tag 2 (if it `waits`, once the first is finished); rank 1 receives 2, then 1."""

    def ref(name: str, number: int):
        return (Ref(name, number, number + 1),)

    one = (
        Send(name="first", lane="network", to=1, tag=1, reads=ref("out", 0)),
        Send(name="second", lane="network", to=1, tag=2, reads=ref("out", 1), after=("first",) if waits else ()),
    )
    two = (
        Recv(name="take2", lane="network", source=0, tag=2, writes=ref("in", 1)),
        Recv(name="take1", lane="network", source=0, tag=1, writes=ref("in", 0)),
    )
    return dataclasses.replace(
        exchange("send"),
        buffers=(Buffer("out", 2, role="state"), Buffer("in", 2)),
        roles=(Role("one", (0,), one), Role("two", (1,), two)),
    )


def exchange(first_of_rank_1: str) -> Plan:
    """Two ranks; rank 0 sends and then receives. Rank 1 too, or it receives and then waits for itself."""
    sends = {"lane": "network", "reads": (Ref("out", 0, 1),)}
    receives = {"lane": "network", "writes": (Ref("in", 0, 1),)}
    one = (Recv(name="recv0", source=1, **receives), Send(name="send0", to=1, after=("recv0",), **sends))
    two = [Send(name="send1", to=0, **sends), Recv(name="recv1", source=0, **receives)]
    if first_of_rank_1 == "recv":
        two.reverse()
    return Plan(
        name="exchange",
        ranks=2,
        tensors=(Tensor("layer1", 0, 1),),
        buffers=(Buffer("out", 1, role="state"), Buffer("in", 1)),
        roles=(Role("one", (0,), one), Role("two", (1,), tuple(two))),
    )


FAULTS = {
    "unmatched send": (changed(SWEEP, without("take2"), role=0), r"waits for 'take2'"),
    "send that nobody receives": (sent_for_nothing(), r"unmatched send: rank 1 never receives 3"),
    "receive that nobody sends": (
        changed(SWEEP, without("push"), role=1),
        r"waits for 'push'",
    ),
    "wrong tag": (changed(SERVER, setting("push", tag=7), role=1), r"brings 0 for 1 of 'take'"),
    "reply that nobody receives": (
        changed(changed(SERVER, without("fetch"), role=1), setting("forward", after_previous=("push",)), role=1),
        r"unmatched send: rank 1 never receives 3 message\(s\) of rank 0 \(tag 2\)",
    ),
    "deadlock across ranks": (exchange("recv"), r"deadlock: rank 0 at 'recv0', rank 1 at 'recv1'"),
    "a send that waits for a receive": (out_of_order(waits=True), r"only when it is received\): rank 0 at 'first'"),
    "receive longer than its send": (
        changed(SWEEP, setting("push", reads=(Ref("parameter", 0, 9),)), role=1),
        r"'push' of rank 1 sends 9 float64, and 'take1' of rank 0 receives 13 float64",
    ),
    "receive of another type than its send": (
        dataclasses.replace(
            SWEEP,
            buffers=tuple(
                dataclasses.replace(b, dtype="float32") if b.name == "incoming" else b for b in SWEEP.buffers
            ),
        ),
        r"'pull1': kernel 'elastic_centre' needs ranges of one of the types",
    ),
    "send on another rail": (
        changed(SWEEP, setting("push", rail=1), role=1),
        r"deadlock: rank 0 at 'centre1', rank 0 at 'take1'|deadlock: rank 0 at 'take1'",
    ),
    "send over another channel": (
        changed(SWEEP, setting("push", channel="own"), role=1),
        r"deadlock: rank 0 at 'take1'",
    ),
    "messages in an order that only timing decides": (
        changed(changed(SWEEP, setting("push", tag=3), role=1), pushed_on_two_lanes, role=1),
        r"rank 1 sends 'push' and 'push again' on channel 'network', rail 0, tag 3 from two lanes",
    ),
    "a message that a receive-from-any takes from another receive": (
        changed(changed(SERVER, one_more_receive, role=0), setting("push", tag=1), role=1),
        r"'take' receives from anybody on channel 'network', rail 0, tag 1, as 'more' receives",
    ),
    "a message of a rank that is no source": (
        changed(SERVER, setting_inside("take", sources=(1,))),
        r"'push' of rank 2 comes to 'take' of rank 0 .*, which receives from ranks 1 only",
    ),
    "a server that takes two messages a pass of three": (
        changed(tiny.async_server(3), served_twice),
        r"a whole number of passes receives, and brings 3 for 2 of 'take'",
    ),
    "a server that receives nothing": (
        changed(SERVER, served_for_nothing),
        r"its lane 'idle' neither receives anything nor waits for what does: it would never end",
    ),
    "a server in a collective": (
        changed(SERVER, served_together),
        r"'sum': a role that serves until others stop takes part in no collective",
    ),
    "a reply that doesn't wait for its question": (
        changed(SERVER, replied_too_early),
        r"reply 'give' doesn't wait for the receive-from-any 'take'",
    ),
    "a collective on two lanes": (
        in_two_ways(then=("message1", "message3"), lane="other"),
        r"collective 'message1' has other lane in role 'other'",
    ),
    "a collective over an axis and of the same ranks": (
        gathered_in_two_ways(ranks=(0, 1)),
        r"collective 'gather' has other ranks in role 'two' than in role 'one'",
    ),
    "a collective in place and not": (
        gathered_in_two_ways(writes=(Ref("aside", 0, 4),)),
        r"collective 'gather' has other place to write to in role 'two' than in role 'one'",
    ),
    "a collective of two kinds": (
        in_two_ways(kind="broadcast", postcondition="copy"),
        r"collective 'message1' has other kind in role 'other'",
    ),
    "a collective of two algorithms": (
        in_two_ways(algorithm="ring"),
        r"collective 'message1' has other algorithm in role 'other'",
    ),
    "a collective of two lengths": (
        in_two_ways(reads=(Ref("gradient", 5, 7),), writes=(Ref("gradient", 5, 7),)),
        r"collective 'message1' has other ranges in role 'other'",
    ),
    "a collective of two types": (of_two_types(), r"collective 'sum' has other ranges in role 'two'"),
}


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        SERVER,
        SWEEP,
        SHARDED,
        SPARSE,
        GROUPS,
        TWO_LEVEL,
        tiny.hogwild(2),
        exchange("send"),
        out_of_order(waits=False),
    ],
)
def test_plans_in_order_pass(plan):
    check(plan)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


IN_THE_GRID = {
    "deadlock across ranks": ["recv0", "recv1"],
    "reply that nobody receives": ["give"],
}


@pytest.mark.parametrize("fault", IN_THE_GRID)
def test_the_message_ends_with_the_grid_and_marks_the_operation(fault):
    marked = marked_in_the_grid(FAULTS[fault][0])
    assert any(name in cell for name in IN_THE_GRID[fault] for cell in marked)


def test_two_collectives_in_opposite_order_on_two_ranks_are_a_deadlock():
    def both_at_the_end(*order: str):
        def edit(body):
            setting("message0", after=("ready:layer1",))(body)
            setting("update", after=("message0", "message1"))(body)
            for name in order:
                body.insert(-1, body.pop(index_of(body, name)))

        return edit

    plan = tiny.synchronous(2, messages=[tiny.Message(0, 1), tiny.Message(2, 3)])
    bodies = [
        changed(plan, both_at_the_end(*order)).roles[0].body
        for order in (("message0", "message1"), ("message1", "message0"))
    ]

    def of_two_roles(first, second):
        return dataclasses.replace(plan, roles=(Role("one", (0,), first), Role("other", (1,), second)))

    check(of_two_roles(bodies[1], bodies[1]))
    with pytest.raises(PlanError, match="deadlock: rank 0 at 'message0', rank 1 at 'message1'"):
        check(of_two_roles(*bodies))
