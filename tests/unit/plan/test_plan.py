"""Plans survive JSON to the last bit, bad ones are refused in one line, and repeats are spelled out as documented."""

import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest

import tiny_plans as tiny
from changed_plans import bases
from gradsync import updates
from gradsync.check import check
from gradsync.engine.oracle import of_rank
from gradsync.errors import InputError
from gradsync.plan import (
    BYTES,
    DTYPE_BYTES,
    VERSION,
    Buffer,
    Collective,
    Local,
    Need,
    Plan,
    Ready,
    RecvAny,
    Ref,
    Repeat,
    Reply,
    Role,
    piece,
    repeats,
)
from gradsync.plan.shards import parts
from tiny_workloads import workload

EVERY = tiny.every_kind()
VERBS = {"need", "ready", "send", "recv", "recv_any", "reply", "collective", "local", "shared_read", "shared_add"}


@pytest.mark.parametrize("name", EVERY)
def test_json_gives_back_an_equal_plan_of_equal_digest(name):
    plan = EVERY[name]
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest
    assert again.to_json() == plan.to_json()
    check(again)


def test_the_tiny_plans_use_every_verb():
    used = {op.verb for plan in EVERY.values() for role in plan.roles for op in role.body}
    inside = {op.verb for plan in EVERY.values() for role in plan.roles for op in role.flat}
    assert inside == VERBS
    assert used | inside == VERBS | {"repeat"}


def test_any_change_changes_the_digest():
    plan = tiny.synchronous(2)
    (role,) = plan.roles
    later = dataclasses.replace(plan, roles=(dataclasses.replace(role, body=(*role.body[1:], role.body[0])),))
    other_rate = dataclasses.replace(role.body[-1], arguments={**role.body[-1].arguments, "lr": 0.5})
    faster = dataclasses.replace(plan, roles=(dataclasses.replace(role, body=(*role.body[:-1], other_rate)),))
    noted = dataclasses.replace(plan, provenance={"cost": "guessed"})
    assert len({each.digest for each in (plan, later, faster, noted)}) == 4


def edited(change):
    document = json.loads(tiny.synchronous(2).to_json())
    change(document)
    return json.dumps(document)


def operation(document):
    return document["roles"][0]["body"][0]


BAD = {
    "no JSON": ("{", "not a plan"),
    "a list": ("[]", "not a plan"),
    "unknown key": (edited(lambda d: d.update(colour="red")), "colour"),
    "unknown key of an operation": (edited(lambda d: operation(d).update(colour="red")), "colour"),
    "unknown verb": (edited(lambda d: operation(d).update(verb="shout")), "shout"),
    "no verb": (edited(lambda d: operation(d).pop("verb")), "roles.0.body.0"),
    "missing ranks": (edited(lambda d: d.pop("ranks")), "ranks"),
    "text for a number": (edited(lambda d: d.update(ranks="many")), "ranks"),
    "unknown kind of collective": (edited(lambda d: d["roles"][0]["body"][2].update(kind="gossip")), "all_reduce"),
    "wrong version": (edited(lambda d: d.update(version=99)), "version 99"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_json_is_refused_in_one_line_that_names_file_and_fault(fault):
    text, named = BAD[fault]
    with pytest.raises(InputError) as caught:
        Plan.from_json(text, "some/plan.json")
    message = str(caught.value)
    assert message.startswith("some/plan.json: ")
    assert named in message
    assert "\n" not in message


def local(name, **waits):
    return Local(name=name, kernel="join", **waits)


def flat(*body):
    return {op.name: op for op in Role("worker", (0,), body).flat}


def test_a_repeat_is_spelled_out_pass_by_pass():
    ops = flat(
        local("before"),
        Repeat(
            name="twice",
            count=2,
            body=(local("a", after=("before",), after_previous=("b",)), local("b", after=("a",))),
        ),
        local("after", after=("b",), after_previous=("a",)),
    )
    assert list(ops) == ["before", "a#0", "b#0", "a#1", "b#1", "after"]
    assert (ops["a#0"].after, ops["a#0"].after_previous) == (("before",), ("b#1",))  # last pass of the turn before
    assert (ops["a#1"].after, ops["a#1"].after_previous) == (("before", "b#0"), ())  # the pass before
    assert ops["b#1"].after == ("a#1",)
    assert (ops["after"].after, ops["after"].after_previous) == (("b#1",), ("a#1",))  # from outside: the last pass


def test_a_later_repeat_waits_for_the_last_pass_of_an_earlier_one():
    ops = flat(
        Repeat(name="first", count=3, body=(local("a"),)),
        Repeat(name="second", count=2, body=(local("b", after=("a",)),)),
    )
    assert ops["b#0"].after == ops["b#1"].after == ("a#2",)


def test_an_earlier_operation_that_waits_for_a_later_repeat_of_the_turn_before_gets_its_last_pass():
    ops = flat(local("first", after_previous=("a",)), Repeat(name="twice", count=2, body=(local("a"),)))
    assert ops["first"].after_previous == ("a#1",)


def test_a_reply_inside_a_repeat_answers_the_receive_of_its_own_pass():
    serve = (RecvAny(name="take", lane="n", sources=(1, 2)), Reply(name="give", lane="n", to="take"))
    ops = flat(local("first"), Repeat(name="serve", count=2, body=serve))
    assert (ops["give#0"].to, ops["give#1"].to) == ("take#0", "take#1")


def test_a_role_that_is_one_repeat_without_count_serves_until_stopped():
    server, worker = tiny.async_server(2).roles
    assert server.until_stopped
    assert [op.name for op in server.flat] == ["take", "apply", "give"]
    assert not worker.until_stopped


@pytest.mark.parametrize(
    "body",
    [
        (local("x"), Repeat(name="endless", body=(local("a"),))),
        (Repeat(name="none", count=0, body=(local("a"),)), local("x")),
        (Repeat(name="outer", count=2, body=(Repeat(name="inner", count=2, body=(local("a"),)),)),),
    ],
    ids=["endless beside others", "no pass", "nested"],
)
def test_repeats_that_mean_nothing_are_refused(body):
    with pytest.raises(InputError, match="repeat"):
        _ = Role("worker", (0,), body).flat


def test_pieces_cover_a_range_without_gap_and_differ_by_one_at_most():
    for start, stop in [(0, 0), (3, 4), (0, 7), (5, 29)]:
        for pieces in range(1, 9):
            bounds = [piece(start, stop, i, pieces) for i in range(pieces)]
            assert [bounds[0][0], bounds[-1][1]] == [start, stop]
            assert all(before[1] == after[0] for before, after in pairwise(bounds))
            assert max(b - a for a, b in bounds) - min(b - a for a, b in bounds) <= 1


def test_messages_name_the_tensors_that_travel_together():
    plan = tiny.synchronous(2, messages=[tiny.Message(0, 1), tiny.Message(2, 3)])
    assert plan.messages() == [["layer4", "layer3"], ["layer2", "layer1"]]
    assert [op.name for op in plan.communications()] == ["message0", "message1"]
    assert plan.bytes_of((Ref("gradient", 0, 3), Ref("parameter", 1, 2))) == 32


OTHER_KINDS = ("exchanged", "reduced_and_broadcast")
ON_AXES = {"summed_on_axes", "sharded_on_axes"}


def test_only_plans_whose_ranks_all_do_the_same_are_symmetric():
    symmetric = {name for name, plan in EVERY.items() if plan.symmetric}
    plain = {"synchronous", "two_lanes", "repeated", "sparse", "dealt_ratios", "sharded"}
    assert symmetric == {*plain, *OTHER_KINDS, *ON_AXES}


def test_the_module_reads_the_version_that_it_writes():
    assert tiny.synchronous(2).version == VERSION


# What is read off a plan


def test_equal_plans_give_equal_text_whatever_the_order_in_which_arguments_were_given():
    def plan_with(**arguments):
        plan = tiny.synchronous(2)
        (role,) = plan.roles
        update = dataclasses.replace(role.body[-1], arguments=arguments)
        return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=(*role.body[:-1], update)),))

    one, other = plan_with(lr=0.5, momentum=0.25), plan_with(momentum=0.25, lr=0.5)
    assert one == other
    assert (one.to_json(), one.digest) == (other.to_json(), other.digest)


def test_of_several_problems_the_first_is_told_and_how_many_more_there_are():
    one = edited(lambda d: d.update(ranks="many"))
    three = edited(lambda d: d.update(ranks="many", name=7, version="new"))
    with pytest.raises(InputError) as caught:
        Plan.from_json(one)
    assert "more)" not in str(caught.value)
    with pytest.raises(InputError, match=r"plan: not a plan: name: .* \(and 2 more\)$"):
        Plan.from_json(three)


def test_a_single_pass_and_as_many_operations_as_are_allowed_are_no_error(monkeypatch):
    assert list(flat(Repeat(name="once", count=1, body=(local("a"),)), local("x"))) == ["a#0", "x"]
    monkeypatch.setattr(repeats, "MOST_OPERATIONS", 7)
    repeat = Repeat(name="thrice", count=3, body=(local("a"), local("b")))
    assert len(flat(repeat, local("x"))) == 7
    with pytest.raises(InputError, match=r"6 operations of repeats and 2 others a turn: .* and 7 in all"):
        flat(repeat, local("x"), local("y"))
    monkeypatch.setattr(repeats, "MOST_REPEATED", 6)
    assert len(flat(repeat, local("x"))) == 7
    monkeypatch.setattr(repeats, "MOST_REPEATED", 5)
    with pytest.raises(InputError, match="at most 5 of repeats are allowed"):
        flat(repeat)


def a_need(name):
    return Need(name=name)


def a_ready(name, tensor):
    return Ready(name=name, tensor=tensor)


def test_a_pass_ends_where_the_next_forward_begins_or_a_gradient_comes_again():
    body = (a_need("f0"), a_need("f1"), a_ready("a0", "a"), a_ready("b0", "b"), a_ready("a1", "a"), a_need("f2"))
    role = Role("worker", (0,), (*body, a_ready("a2", "a")))
    assert role.pass_of == {"f0": 0, "f1": 0, "a0": 0, "b0": 0, "a1": 1, "f2": 2, "a2": 2}
    assert role.passes == 3
    assert Role("server", (0,), (local("x"),)).passes == 0


def test_a_role_is_held_by_the_first_buffer_that_each_rank_has_for_itself():
    plan = tiny.hogwild(2)
    shared = Buffer("everybody's", 13, "float64", shared=True, role="parameter")
    plan = dataclasses.replace(plan, buffers=(shared, *plan.buffers))
    assert plan.holding("parameter") == "parameter"
    assert plan.holding("centre") is None  # shared
    assert plan.holding("momentum") is None


def test_what_moves_data_between_ranks_is_communication():
    kinds = {op.verb for plan in EVERY.values() for role in plan.roles for op in plan.communications(role)}
    assert kinds == VERBS - {"need", "ready", "local"}


def test_messages_name_no_tensor_that_they_only_touch_and_nothing_that_is_no_gradient():
    assert tiny.dealt_ratios(3).messages() == [["layer3", "layer2", "layer1"]]  # not the gathered norms
    assert tiny.synchronous(2, (5, 3)).messages() == [["layer2"], ["layer1"]]
    load = workload([20, 12], [1.0, 1.0]).model_copy(update={"statistics": 8})  # as many as there are parameters
    plan = updates.plan("ssgd", "as many", load, (tiny.Message(0, 1),), 2)
    assert [op.name for op in plan.communications()] == ["statistics", "message0"]
    assert plan.messages() == [["layer2", "layer1"]]


def changed(plan, change):
    """The plan with each operation of its only role as `change` gives it."""
    (role,) = plan.roles
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(map(change, role.body))),))


def test_parameters_are_alike_on_all_ranks_where_all_do_the_same_to_whole_ranges():
    def of_one_rank(op):
        return dataclasses.replace(op, requires=None) if isinstance(op, Local) else op

    alike = {name: plan.alike for name, plan in EVERY.items() if plan.alike}
    everybody = ("synchronous", "two_lanes", "repeated", "sharded", "dealt_ratios", *OTHER_KINDS)
    assert alike == dict.fromkeys(everybody, ("parameter",))
    assert tiny.sparse(3).alike == ()  # what is gathered, each rank sums for itself
    assert tiny.dealt_ratios(3).alike == ("parameter",)  # all have gathered the ratios
    assert tiny.sharded(3).alike == ("parameter",)  # a piece each, which all gather
    plan = tiny.synchronous(2)
    assert changed(plan, of_one_rank).alike == ()  # an update from gradients that are not those of all
    scratch = Local(name="noise", kernel="fill", arguments={"value": 1.0}, writes=(Ref("gradient", 0, 1),))
    (role,) = plan.roles
    noisy = dataclasses.replace(plan, roles=(dataclasses.replace(role, body=(*role.body, scratch)),))
    assert noisy.alike == ("parameter",)  # gradients don't outlast a turn


def test_the_pace_is_that_of_the_ranks_that_compute_gradients():
    assert tiny.async_server(2).pace == 1  # rank 0 serves
    assert tiny.easgd_round_robin(3).pace == 1
    assert tiny.synchronous(3).pace == 0
    assert tiny.in_groups(2, 2).pace == 0


def test_bytes_are_those_of_the_type_of_each_buffer():
    plan = tiny.synchronous(2)
    narrow = Buffer("wire", 13, "float16")
    plan = dataclasses.replace(plan, buffers=(*plan.buffers, narrow))
    assert plan.bytes_of((Ref("gradient", 2, 5), Ref("wire", 1, 4))) == 3 * 8 + 3 * 2


def test_nothing_of_a_plan_can_be_changed_and_operations_are_written_by_name():
    plan = tiny.synchronous(2)
    (role,) = plan.roles
    for part in (plan, role, plan.tensors[0], plan.buffers[0], *role.body):
        with pytest.raises(dataclasses.FrozenInstanceError):
            part.name = "other"
    operations = {op.verb: op for plan in EVERY.values() for role in plan.roles for op in (*role.body, *role.flat)}
    for op in operations.values():
        fields = {field.name: getattr(op, field.name) for field in dataclasses.fields(op) if field.name != "verb"}
        assert type(op)(**fields) == op
        with pytest.raises(TypeError):
            type(op)(op.verb, **fields)
        with pytest.raises(TypeError):
            type(op)(fields.pop("name"), **fields)


def test_every_type_has_a_size_that_of_bytes_is_one():
    assert DTYPE_BYTES[BYTES] == 1


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_rank_has_a_piece_of_each_part_of_a_buffer_of_shards_and_no_gaps(ranks):
    plan = bases.with_shards(bases.sharded_model(ranks))
    whole = np.arange(plan.elements)
    (momentum,) = (buffer for buffer in plan.buffers if buffer.mine)
    own = [of_rank(plan, momentum, rank, whole) for rank in range(ranks)]
    assert sorted(np.concatenate(own)) == list(whole)
    for rank, values in enumerate(own):
        assert len(values) == plan.shards.elements("momentum", rank)
        for part in parts(momentum):
            start, stop = plan.shards.place(part, rank)
            assert list(values[start:stop]) == list(range(*plan.mesh.bounds(part, rank)))
    assert plan.most_bytes("momentum") == max(plan.bytes_of_rank(rank, "momentum") for rank in range(ranks))
    assert plan.most_bytes() == 8 * (2 * plan.elements + max(map(len, own)))  # parameters and gradients are whole


def test_what_of_shards_is_a_ranks_own_is_no_mark_of_others():
    plan = bases.with_momentum(tiny.sharded(2))
    assert plan.alike == ("parameter",)
    assert bases.with_shards(plan).alike == ("parameter",)
    (role,) = plan.roles
    gathers = [op.name for op in role.body if isinstance(op, Collective) and op.kind == "all_gather"]
    ungathered = tuple(op for op in role.body if op.name != gathers[0])
    assert dataclasses.replace(plan, roles=(dataclasses.replace(role, body=ungathered),)).alike == ()
