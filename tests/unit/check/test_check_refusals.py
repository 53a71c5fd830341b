"""What check refuses at the edge of what it lets pass: the last rank, the next element, the other end of a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import tiny_plans as tiny
from gradsync.check import PlanError, check, grid
from gradsync.check.channels import refuse_channels
from gradsync.check.contents import Run
from gradsync.check.form import refuse_form
from gradsync.plan import Buffer, Local, Need, Plan, Ready, Recv, RecvAny, Ref, Repeat, Role, Send, SharedAdd, Tensor

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)


def edited(plan: Plan, change: Callable[[Any], Any], role: int = 0) -> Plan:
    """Each operation of a role as `change` gives it, inside repeats too; without those it gives None for."""

    def those(body: tuple) -> tuple:
        inner = (dataclasses.replace(op, body=those(op.body)) if isinstance(op, Repeat) else change(op) for op in body)
        return tuple(op for op in inner if op is not None)

    roles = list(plan.roles)
    roles[role] = dataclasses.replace(roles[role], body=those(roles[role].body))
    return dataclasses.replace(plan, roles=tuple(roles))


def setting(name: str, **values: Any) -> Callable[[Any], Any]:
    return lambda op: dataclasses.replace(op, **values) if op.name == name else op


def with_operations(plan: Plan, *more: Any, role: int = 0, buffers: tuple[Buffer, ...] = ()) -> Plan:
    roles = list(plan.roles)
    roles[role] = dataclasses.replace(roles[role], body=(*roles[role].body, *more))
    return dataclasses.replace(plan, roles=tuple(roles), buffers=(*plan.buffers, *buffers))


def refused(plan: Plan, match: str, look: Callable[[Plan], Any] = check) -> PlanError:
    with pytest.raises(PlanError, match=match) as caught:
        look(plan)
    return caught.value


# Form


@pytest.mark.parametrize("ranks", [((0,), (2,)), ((0,), (0,)), ((0, 1), (1,)), ((0,), ()), ((1,), (0, 2))])
def test_each_rank_has_one_role_be_their_number_right_or_not(ranks):
    roles = tuple(Role(f"role{i}", each, PLAN.roles[0].body) for i, each in enumerate(ranks))
    refused(dataclasses.replace(PLAN, roles=roles), r"must give each of its 2 ranks \(0 to 1\) one role", refuse_form)


@pytest.mark.parametrize("stop", [0, -1])
def test_a_tensor_has_elements_even_where_it_begins_as_it_must(stop):
    tensors = (Tensor("none", 0, stop), *PLAN.tensors)
    refused(dataclasses.replace(PLAN, tensors=tensors), "'none': tensors must follow one another", refuse_form)


@pytest.mark.parametrize("peer", [2, -1])
def test_the_ranks_of_a_plan_end_before_their_number(peer):
    two = tiny.uneven_roles(2)
    ref = (Ref("gradient", 0, 1),)
    for op in (
        Send(name="sent", lane="network", to=peer, reads=ref),
        Recv(name="sent", lane="network", source=peer, writes=ref),
        RecvAny(name="sent", lane="network", sources=(1, peer), writes=ref),
    ):
        error = refused(with_operations(two, op), f"'sent' names rank {peer}, the plan has 2", refuse_form)
        assert error.at_fault == {(0, len(two.roles[0].body)): "!"}


def added(read: tuple[int, int], written: tuple[int, int]) -> Plan:
    add = Local(name="add", kernel="add", reads=(Ref("spare", *read),), writes=(Ref("spare", *written),))
    return with_operations(PLAN, add, buffers=(Buffer("spare", 6, "float64"),))


@pytest.mark.parametrize(("read", "written"), [((0, 2), (2, 4)), ((2, 4), (0, 2)), ((0, 1), (5, 6)), ((1, 3), (1, 3))])
def test_ranges_may_touch_or_be_the_same(read, written):
    refuse_form(added(read, written))


@pytest.mark.parametrize(("read", "written"), [((0, 2), (1, 3)), ((1, 3), (0, 2)), ((0, 3), (2, 5))])
def test_ranges_may_not_overlap_in_part(read, written):
    refused(added(read, written), "overlap: what is written must lie apart", refuse_form)


SHARED = (
    Buffer("one", 4, "float64", shared=True, role="state"),
    Buffer("other", 4, "float64", shared=True, role="state"),
)
OWN = (Buffer("own", 4, "float64"), Buffer("narrow", 4, "float32"))


@pytest.mark.parametrize(
    ("source", "target", "match"),
    [
        (Ref("one", 0, 4), Ref("other", 0, 4), "is not a shared buffer, or from one"),
        (Ref("own", 0, 4), Ref("narrow", 0, 4), "shared_add to 'narrow', which is not a shared buffer"),
        (Ref("own", 0, 3), Ref("one", 0, 4), "a shared_add needs ranges of equal length and type"),
        (Ref("narrow", 0, 4), Ref("one", 0, 4), "a shared_add needs ranges of equal length and type"),
        (Ref("nowhere", 0, 4), Ref("one", 0, 4), "uses buffer 'nowhere', which the plan does not have"),
    ],
)
def test_a_shared_add_goes_from_what_is_ones_own_to_what_is_shared(source, target, match):
    add = SharedAdd(name="push", reads=(source,), writes=(target,))
    refused(with_operations(PLAN, add, buffers=(*SHARED, *OWN)), match, refuse_form)
    right = SharedAdd(name="push", reads=(Ref("own", 0, 4),), writes=(Ref("one", 0, 4),))
    refuse_form(with_operations(PLAN, right, buffers=(*SHARED, *OWN)))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int32"])
def test_the_scaler_of_the_loss_is_of_floats(dtype):
    for scaler_type, bad in ((dtype, True), ("float32", False), ("float64", False)):
        plan = dataclasses.replace(PLAN, buffers=(*PLAN.buffers, Buffer("scaler", 3, scaler_type, role="scaler")))
        if bad:
            refused(plan, "'scaler': a scaler has 3 elements of float32 or float64", refuse_form)
        else:
            refuse_form(plan)


# The two ends of a message


def test_a_reply_is_held_against_what_the_worker_receives():
    shorter = setting("give", reads=(Ref("parameter", 0, 12),))
    refused(edited(SERVER, shorter), "'give' of rank 0 sends 12 float64, and 'fetch' of rank 1 receives 13 float64")
    refused(edited(SERVER, setting("give", tag=3)), "deadlock: rank 1 at 'fetch', rank 2 at 'fetch'")


def twice(*order: str) -> Plan:
    """The server takes two messages a pass, each into its own buffer, and workers send and fetch twice as well."""
    (serve,) = SERVER.roles[0].body
    ops = {op.name: op for op in serve.body}
    ops["take2"] = dataclasses.replace(ops["take"], name="take2", writes=(Ref("aside", 0, 13),))
    ops["give2"] = dataclasses.replace(ops["give"], name="give2", to="take2")
    ops["again"] = dataclasses.replace(ops["give"], name="again")
    worker = SERVER.roles[1]
    sent = tuple(
        dataclasses.replace(op, name=f"{op.name}{turn}", after_previous=())
        for turn in range(2)
        for op in worker.flat
        if op.name in ("push", "fetch")
    )
    needs = [dataclasses.replace(op, after_previous=()) for op in worker.flat if op.name not in ("push", "fetch")]
    roles = (
        dataclasses.replace(
            SERVER.roles[0], body=(dataclasses.replace(serve, body=tuple(ops[name] for name in order)),)
        ),
        dataclasses.replace(worker, body=(*needs, *sent)),
    )
    return dataclasses.replace(SERVER, roles=roles, buffers=(*SERVER.buffers, Buffer("aside", 13, "float64")))


def test_several_receives_from_anybody_are_replied_to_one_by_one_and_alike():
    """Only timing tells which of both takes whose message: else a worker may wait for ever for its reply."""
    refuse_channels(twice("take", "apply", "give", "take2", "give2"))
    problem = "'take' and 'take2' of rank 0 receive from anybody on .*: reply to the first before the second"
    for order in (
        ("take", "take2", "apply", "give", "give2"),
        ("take", "apply", "give", "again", "take2"),
        ("take", "take2", "apply", "give", "again"),
    ):
        error = refused(twice(*order), problem, refuse_channels)
        assert set(error.at_fault) == {(0, order.index("take")), (0, order.index("take2"))}


def test_receives_from_anybody_on_two_lanes_are_marked_both():
    (serve,) = SERVER.roles[0].body
    take = next(op for op in serve.body if op.name == "take")
    again = dataclasses.replace(take, name="again", lane="beside", writes=(Ref("aside", 0, 13),))
    serve = dataclasses.replace(serve, body=(*serve.body, again))
    roles = (dataclasses.replace(SERVER.roles[0], body=(serve,)), SERVER.roles[1])
    plan = dataclasses.replace(SERVER, roles=roles, buffers=(*SERVER.buffers, Buffer("aside", 13, "float64")))
    error = refused(
        plan, "rank 0 receives 'take' and 'again' on .* from two lanes: only timing decides which comes first"
    )
    assert {(0, 0), (0, 3)} <= set(error.at_fault)


# What is computed


def test_what_makes_all_gradients_ready_is_alone_in_its_pass():
    whole = (Ref("parameter", 0, 13),), (Ref("gradient", 0, 13),)
    every = Ready(name="every", tensor=None, reads=whole[0], writes=whole[1])
    (role,) = PLAN.roles
    step = next(i for i, op in enumerate(role.body) if isinstance(op, Ready))
    body = (*role.body[:step], every, *role.body[step:])
    plan = dataclasses.replace(PLAN, roles=(dataclasses.replace(role, body=body),))
    error = refused(plan, "'every': what makes all gradients ready writes all of them, and is alone in its pass")
    assert set(error.at_fault) == {(0, step), (1, step)}


def test_a_rank_whose_gradient_reaches_no_update_is_found_beside_one_whose_does():
    """Each of two ranks trains for itself; rank 1 never updates, and a range of names says what is lost."""
    passes = tuple(op for op in PLAN.roles[0].body if isinstance(op, Need | Ready))
    gradient, parameter = Ref("gradient", 0, 13), Ref("parameter", 0, 13)
    update = Local(name="update", kernel="sgd", arguments={"lr": 0.1}, reads=(gradient,), writes=(parameter,))
    idle = Local(name="idle", kernel="norm", reads=(gradient,), writes=(Ref("norm", 0, 1),))
    buffers = (*PLAN.buffers, Buffer("norm", 1, "float64"))
    both = tuple(Role(f"rank{rank}", (rank,), (*passes, update)) for rank in range(2))
    check(dataclasses.replace(PLAN, roles=both, buffers=buffers))
    forward = dataclasses.replace(passes[0], after_previous=("idle",))
    one = (both[0], Role("rank1", (1,), (forward, *passes[1:], idle)))
    error = refused(
        dataclasses.replace(PLAN, roles=one, buffers=buffers),
        "missing gradient: 'layer4' is made ready and reaches no update",
    )
    assert set(error.at_fault) == {(1, 1)}


def test_names_of_tensors_in_a_range():
    run = Run(PLAN, 3)
    assert run.tensors(0, 5) == "'layer4'"
    assert run.tensors(4, 6) == "'layer4' to 'layer3'"
    assert run.tensors(0, 13) == "'layer4' to 'layer1'"
    assert run.tensors(20, 22) == "elements 20 to 21"


def test_a_token_is_of_one_rank_and_one_pass_alone():
    run = Run(tiny.synchronous(3), 3)
    tokens = {(rank, number): run.token(rank, number) for rank in range(3) for number in range(3)}
    for (rank, number), token in tokens.items():
        assert run.owners(token) == {rank: [number]}
    assert run.owners(tokens[0, 2] | tokens[2, 0] | tokens[2, 1]) == {0: [2], 2: [0, 1]}
    assert run.owners(0) == {}


def test_a_rank_alone_may_not_change_its_parameters_before_its_own_gradient():
    alone = tiny.synchronous(1)
    (role,) = alone.roles
    update = next(op for op in role.body if op.name == "update")
    gradient, parameter = update.reads[0], update.writes[0]
    noise = Local(name="first", kernel="sgd", arguments={"lr": 0.1}, reads=(gradient,), writes=(parameter,))
    check(alone)
    again = with_operations(alone, dataclasses.replace(noise, name="again", after=("update",)))
    refused(again, "'again' applies gradients of .* to other parameters than they were computed with")


# The picture


def test_the_grid_has_six_steps_around_the_fault_and_no_more():
    plan = tiny.synchronous(2)
    steps = len(plan.roles[0].flat)
    assert steps == 10
    for at in range(steps):
        (heading, first, *_) = grid(plan, {(0, at): "!"}).splitlines()
        shown = [int(word) for word in heading.split() if word != "step"]
        assert len(shown) == 6
        assert shown == list(range(shown[0], shown[0] + 6))
        assert at in shown
        assert first.count(">>") == first.count("!<<") == 1
