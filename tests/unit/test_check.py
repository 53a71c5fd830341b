"""Each kind of fault planted in a plan that is in order is found, and shown where it is."""

import dataclasses

import pytest

import tiny_plans as tiny
from gradsync.check import PlanError, check, grid
from gradsync.lowering import lowered
from gradsync.plan import (
    Buffer,
    Collective,
    Local,
    Plan,
    Ready,
    Recv,
    Ref,
    Repeat,
    Reply,
    Role,
    Send,
    SharedAdd,
    Tensor,
)


def changed(plan: Plan, edit, role: int = 0) -> Plan:
    """The plan with `edit` done to the list of operations of one role."""
    roles = list(plan.roles)
    body = list(roles[role].body)
    edit(body)
    roles[role] = dataclasses.replace(roles[role], body=tuple(body))
    return dataclasses.replace(plan, roles=tuple(roles))


def setting(name: str, /, **values):
    """An edit that changes fields of one operation."""

    def edit(body):
        index = index_of(body, name)
        body[index] = dataclasses.replace(body[index], **values)

    return edit


def index_of(body, name: str) -> int:
    return next(i for i, op in enumerate(body) if op.name == name)


def without(name: str):
    def edit(body):
        del body[index_of(body, name)]

    return edit


def moved_to_front(name: str):
    def edit(body):
        body.insert(0, body.pop(index_of(body, name)))

    return edit


def appended(op):
    return lambda body: body.append(op)


def summed_again(body):
    ref = Ref("gradient", 5, 8)
    body.insert(-1, Collective(name="again", lane="network", reads=(ref,), writes=(ref,)))
    setting("update", after=("again",))(body)


def sent_for_nothing(body):
    body.append(Send(name="extra", lane="network", to=0, reads=(Ref("parameter", 0, 1),), after=("update",)))
    setting("update", after_previous=("extra",))(body)


PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
SWEEP = tiny.easgd_round_robin(2)
SHARDED = tiny.sharded(2)
SPARSE = tiny.sparse(2)
GROUPS = tiny.in_groups(2, 2)
TWO_LEVEL = tiny.two_level()
WHOLE = Ref("gradient", 0, 13)


def out_of_order(waits: bool) -> Plan:
    """Rank 0 sends tag 1, then tag 2 (once the first is finished where it `waits`); rank 1 receives 2, then 1."""

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
        buffers=(Buffer("out", 2), Buffer("in", 2)),
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
        buffers=(Buffer("out", 1), Buffer("in", 1)),
        roles=(Role("one", (0,), one), Role("two", (1,), tuple(two))),
    )


FAULTS = {
    # waits
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
    # gradients
    "dropped message": (
        changed(PLAN, without("message1")),
        r"missing gradient: 'layer3' reaches 'update' without the gradients of rank",
    ),
    "half a message": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 4),), writes=(Ref("gradient", 0, 4),))),
        r"missing gradient: 'layer4' reaches 'update' without the gradients of rank",
    ),
    "gradient that nobody makes": (changed(PLAN, without("ready:layer3")), r"waits for 'ready:layer3'"),
    "gradient that nobody makes ready": (
        changed(changed(PLAN, without("ready:layer3")), setting("message1", after=())),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that nobody uses": (
        changed(SERVER, setting("push", reads=(Ref("gradient", 0, 12),)), role=1),
        r"missing gradient: 'layer1' is made ready and nothing uses it",
    ),
    "sent before it is ready": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 8),), writes=(Ref("gradient", 0, 8),))),
        r"'message0' sends gradients that are not ready before it|race on gradient",
    ),
    "summed twice": (changed(PLAN, summed_again), r"'again' sums 'layer3' a second time"),
    "sparse sum missing": (
        changed(changed(SPARSE, without("decode")), setting("update", after=("gather_values", "gather_indices"))),
        r"missing gradient: .* without 'sparse_sum'",
    ),
    "shard taken for a sum": (
        changed(SHARDED, setting("update:layer3", reads=(tiny.place("gradient", SHARDED.tensors[1]),))),
        r"missing gradient: 'layer3' reaches 'update:layer3' without 'shard'",
    ),
    # messages between ranks
    "unmatched send": (changed(SWEEP, without("take2"), role=0), r"waits for 'take2'"),
    "send that nobody receives": (changed(PLAN, sent_for_nothing), r"unmatched send: rank 0 never receives 2"),
    "receive that nobody sends": (
        changed(SWEEP, without("push"), role=1),
        r"waits for 'push'",
    ),
    "wrong tag": (changed(SERVER, setting("push", tag=7), role=1), r"deadlock: rank 1 at 'fetch', rank 2 at 'fetch'"),
    "reply that nobody receives": (
        changed(changed(SERVER, without("fetch"), role=1), setting("forward", after_previous=("push",)), role=1),
        r"unmatched send: rank 1 never receives 2 message\(s\) of rank 0 \(tag 2\)",
    ),
    "deadlock across ranks": (exchange("recv"), r"deadlock: rank 0 at 'recv0', rank 1 at 'recv1'"),
    "a send that waits for a receive": (out_of_order(waits=True), r"only when it is received\): rank 0 at 'first'"),
    # form
    "message on the compute lane": (
        changed(PLAN, setting("message0", lane="compute")),
        r"a collective on lane 'compute'",
    ),
    "forward on another lane": (changed(PLAN, setting("forward", lane="network")), r"a need on lane 'network'"),
    "gather that claims a sum": (
        changed(SPARSE, setting("gather_values", postcondition="sum")),
        r"postcondition of all_gather is 'gather', not 'sum'",
    ),
    "collective of other ranks": (changed(PLAN, setting("message0", ranks=(0,))), r"'message0' is for ranks \(0,\)"),
    "levels of other ranks": (
        changed(PLAN, setting("message0", algorithm="ring", shape=(2, 2))),
        r"'message0' is for 2 ranks, not for levels of 2 x 2",
    ),
    "root that is not there": (
        changed(GROUPS, setting("message0", kind="broadcast", postcondition="copy", root=2)),
        r"'message0' is for ranks \(0, 1\): its root",
    ),
    "collective of pieces": (
        changed(SPARSE, setting("gather_values", reads=(Ref("values", 0, 6, True),))),
        r"'gather_values': a collective reads and writes whole ranges",
    ),
    "collective of unequal ranges": (
        changed(SPARSE, setting("gather_values", reads=(Ref("values", 0, 4),))),
        r"whole ranges of equal lengths",
    ),
    "two roles for a rank": (
        dataclasses.replace(SERVER, roles=(*SERVER.roles, dataclasses.replace(SERVER.roles[1], name="more"))),
        r"each of its 3 ranks \(0 to 2\) one role",
    ),
    "a rank without a role": (dataclasses.replace(PLAN, ranks=3), r"each of its 3 ranks \(0 to 2\) one role"),
    "a role that does nothing": (changed(PLAN, list.clear), r"role 'worker' has no operations"),
    "no ranks": (dataclasses.replace(PLAN, ranks=0, roles=()), r"0 ranks"),
    "send to a rank that is not there": (
        changed(SWEEP, setting("push", to=9), role=1),
        r"'push' names rank 9",
    ),
    "unknown kernel": (changed(PLAN, setting("update", kernel="adagrad")), r"unknown kernel 'adagrad' \(known: sgd"),
    "unknown buffer": (changed(PLAN, setting("update", writes=(Ref("weights", 0, 1),))), r"uses buffer 'weights'"),
    "out of bounds": (
        changed(PLAN, setting("update", reads=(Ref("gradient", 0, 14),))),
        r"gradient\[0:14\].* 13 ",
    ),
    "unknown dtype": (
        dataclasses.replace(PLAN, buffers=(*PLAN.buffers, Buffer("more", 1, "float12"))),
        r"unknown dtype 'float12'",
    ),
    "equal names": (changed(PLAN, setting("message1", name="message0")), r"two operations are named 'message0'"),
    "equal buffers": (dataclasses.replace(PLAN, buffers=(*PLAN.buffers, PLAN.buffers[0])), r"two buffers"),
    "equal roles": (
        dataclasses.replace(SERVER, roles=tuple(dataclasses.replace(role, name="all") for role in SERVER.roles)),
        r"two roles",
    ),
    "gap between tensors": (dataclasses.replace(PLAN, tensors=PLAN.tensors[1:]), r"without gap"),
    "reply to nobody": (
        changed(PLAN, appended(Reply(name="answer", lane="network", to="question"))),
        r"reply 'answer': no receive-from-any 'question'",
    ),
    "shared add to a private buffer": (
        changed(tiny.hogwild(2), setting("push", writes=(Ref("parameter", 0, 13),), reads=(WHOLE,))),
        r"'push': shared_add to 'parameter', which is not a shared buffer",
    ),
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
    "race": ["ready:layer4", "message0"],
    "waits for a later operation": ["message3", "ready:layer1"],
    "dropped message": ["update"],
    "summed twice": ["again"],
    "deadlock across ranks": ["recv0", "recv1"],
    "reply that nobody receives": ["give"],
    "unknown kernel": ["update"],
    "send to a rank that is not there": ["push"],
    "gradient that nobody uses": ["ready:layer1"],
}


@pytest.mark.parametrize("fault", IN_THE_GRID)
def test_the_message_ends_with_the_grid_and_marks_the_operation(fault):
    with pytest.raises(PlanError) as caught:
        check(FAULTS[fault][0])
    _, header, *rows = str(caught.value).splitlines()
    assert "step " in header
    assert any(row.startswith("rank ") for row in rows)
    marked = [cell for row in rows for cell in row.split(">>")[1:]]
    assert any(name in cell.split("<<")[0] for name in IN_THE_GRID[fault] for cell in marked)


def test_the_grid_of_a_large_plan_stays_small_and_shows_the_rank_at_fault():
    plan = tiny.synchronous(40)
    picture = grid(plan, {(37, 8): "here"})
    assert ">>" in next(line for line in picture.splitlines() if line.startswith("rank 37"))
    assert len(picture.splitlines()) <= 18
    assert "(24 more ranks)" in picture


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


def test_a_repeat_that_cannot_be_spelled_out_is_refused():
    broken = changed(
        PLAN, lambda body: body.append(Repeat(name="more", count=0, body=(Local(name="x", kernel="join"),)))
    )
    with pytest.raises(Exception, match="repeat 'more'"):
        check(broken)


def test_ready_alone_is_not_enough_without_an_update():
    body = tuple(op for op in PLAN.roles[0].body if isinstance(op, Ready))
    broken = dataclasses.replace(PLAN, roles=(dataclasses.replace(PLAN.roles[0], body=body),))
    with pytest.raises(PlanError, match="nothing uses it"):
        check(broken)


def test_a_shared_buffer_takes_unlocked_adds():
    plan = tiny.hogwild(3, locked=False)
    assert any(isinstance(op, SharedAdd) and not op.locked for op in plan.roles[0].body)
    check(plan)


def lowered_without(number: int):
    """A ring of three whose sums of one round are left out on rank 1."""
    plan = lowered(tiny.synchronous(3, algorithm="ring"))
    roles = [
        dataclasses.replace(
            role,
            body=tuple(op for op in role.body if role.ranks != (1,) or not op.name.startswith(f"message0.add{number}")),
        )
        for role in plan.roles
    ]
    return dataclasses.replace(plan, roles=tuple(roles))


def test_a_missing_message_across_groups_is_found_with_the_ranks_that_it_would_have_brought():
    body = TWO_LEVEL.roles[0].body
    role = dataclasses.replace(TWO_LEVEL.roles[0], body=tuple(op for op in body if op.name != "message1"))
    peer = TWO_LEVEL.roles[2]
    other = dataclasses.replace(peer, body=tuple(op for op in peer.body if op.name != "message1"))
    roles = (role, TWO_LEVEL.roles[1], other, TWO_LEVEL.roles[3])
    with pytest.raises(PlanError, match=r"without the gradients of rank\(s\) 2, 3"):
        check(dataclasses.replace(TWO_LEVEL, roles=roles))


def test_a_sum_left_out_of_a_lowered_collective_is_found():
    check(lowered(tiny.synchronous(3, algorithm="ring")))
    with pytest.raises(PlanError, match="missing gradient"):
        check(lowered_without(0))


def test_a_group_that_sums_twice_is_found():
    roles = []
    for role in TWO_LEVEL.roles:
        pair = (role.ranks[0] // 2 * 2, role.ranks[0] // 2 * 2 + 1)
        body = [dataclasses.replace(op, ranks=pair) if op.name == "message0" else op for op in role.body]
        roles.append(dataclasses.replace(role, body=tuple(body)))
    # the second sum of message 0 is again within the pair, under one name for each pair
    renamed = [
        dataclasses.replace(
            role,
            body=tuple(
                dataclasses.replace(
                    op,
                    name=f"{op.name}.{role.ranks[0] // 2}" if op.name == "message0" else op.name,
                    after=tuple(f"{name}.{role.ranks[0] // 2}" if name == "message0" else name for name in op.after),
                )
                for op in role.body
            ),
        )
        for role in roles
    ]
    with pytest.raises(PlanError, match="a second time"):
        check(dataclasses.replace(TWO_LEVEL, roles=tuple(renamed)))
