"""Faults that agree on both ends, or that only extreme numbers make, are found too; and what looks like them passes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

import tiny_plans as tiny
from changed_plans import bases, families
from gradsync.check import PlanError, check
from gradsync.engine.progress import DEEPEST, Clock, Progress
from gradsync.errors import InputError
from gradsync.plan import Buffer, Collective, Local, Need, Plan, Ready, Recv, Ref, Repeat, Role, Send
from gradsync.rounds.lowering import lowered
from plan_edits import appended, changed, index_of, inside, setting, setting_inside, with_buffers, without

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
HOGWILD = tiny.hogwild(2)
SPARSE = tiny.sparse(2)
RING = tiny.synchronous(2, algorithm="ring")
SCALED = bases.scheme("mgwfbp", 2, None, "float32", loss_scaling=True, momentum=0.0)
GRADIENT, PARAMETER = Ref("gradient", 0, 13), Ref("parameter", 0, 13)
SPARE = Buffer("spare", 13, "float64")


def alone(*ops: Any, buffers: tuple[Buffer, ...] = (), ranks: int = 1) -> Plan:
    """Operations of ranks that compute no gradients, on buffers of four elements that hold something, a and b."""
    known = (Buffer("a", 4, "float64", role="state"), Buffer("b", 4, "float64", role="state"))
    plan = Plan("alone", ranks, (), known, (Role("worker", tuple(range(ranks)), ops),))
    return with_types(with_buffers(plan, *buffers))


def with_types(plan: Plan, **types: str) -> Plan:
    """With other types of the buffers that are named."""
    buffers = tuple(dataclasses.replace(each, dtype=types.get(each.name, each.dtype)) for each in plan.buffers)
    return dataclasses.replace(plan, buffers=buffers)


def kernel(kernel: str, reads: tuple[Ref, ...], writes: tuple[Ref, ...], **more: Any) -> Local:
    return Local(name="x", kernel=kernel, reads=reads, writes=writes, **more)


def scaled(kernel_name: str, dtype: str, into: str = "", **arguments: float) -> Plan:
    """A kernel with these arguments from a to b."""
    op = kernel(kernel_name, (Ref("a", 0, 4),), (Ref("b", 0, 4),), arguments=arguments)
    return with_types(alone(op), a=dtype, b=into or dtype)


def without_answers() -> Plan:
    """The server doesn't reply, and nobody waits for it."""

    @inside
    def silent(body):
        without("give")(body)
        setting("apply", after_previous=())(body)
        setting("take", after_previous=("apply",))(body)

    def deaf(body):
        without("fetch")(body)
        setting("forward", after_previous=("push",))(body)

    return changed(changed(SERVER, silent), deaf, role=1)


def swapped() -> Plan:
    """Two ranks apply the gradients of one another, and never their own."""
    (role,) = PLAN.roles
    need, *readies = (op for op in role.body if isinstance(op, Need | Ready))
    roles = []
    for rank in (0, 1):
        send = Send(name="send", lane="network", to=1 - rank, reads=(GRADIENT,), after=("ready:layer1",))
        take = Recv(
            name="take", lane="network", source=1 - rank, writes=(Ref("spare", 0, 13),), after_previous=("update",)
        )
        update = dataclasses.replace(role.body[-1], reads=(Ref("spare", 0, 13),), after=("send", "take"), requires=None)
        forward = dataclasses.replace(need, after_previous=("update", "send"))
        roles.append(Role(f"rank{rank}", (rank,), (forward, *readies, send, take, update)))
    return dataclasses.replace(with_buffers(PLAN, SPARE), roles=tuple(roles))


def narrowed_on_one_rank() -> Plan:
    """Rank 1 puts the sum through float32 before it applies it."""
    (role,) = PLAN.roles
    *body, update = role.body
    half = Ref("half", 0, 13)
    sums = tuple(op.name for op in body if isinstance(op, Collective))
    casts = (
        Local(name="narrow", kernel="cast", after=sums, reads=(GRADIENT,), writes=(half,)),
        Local(name="widen", kernel="cast", reads=(half,), writes=(GRADIENT,)),
    )
    roles = (Role("one", (0,), role.body), Role("two", (1,), (*body, *casts, update)))
    return dataclasses.replace(with_buffers(PLAN, Buffer("half", 13, "float32")), roles=roles)


def of_two_lengths() -> Plan:
    """Each rank encodes its gradients twice, three of them and two; rank 0 applies the first, rank 1 the others."""
    (role,) = SPARSE.roles
    first = index_of(list(role.body), "encode")
    lengths = {"values": "values2", "indices": "indices2", "residual": "residual2"}

    def other(ref: Ref) -> Ref:
        if ref.buffer not in lengths:
            return ref
        return Ref(lengths[ref.buffer], ref.start, 4 if ref.buffer != "residual" else ref.stop, ref.mine)

    def second(op: Any) -> Any:
        changes: dict[str, Any] = {
            "name": f"{op.name}2",
            "after": tuple(f"{name}2" if name == "encode" else name for name in op.after),
            "reads": tuple(map(other, op.reads)),
            "writes": tuple(map(other, op.writes)),
        }
        return dataclasses.replace(op, **changes)

    encode, *gathers = role.body[first : first + 3]
    both = (*role.body[:first], encode, second(encode), *gathers, *map(second, gathers))
    decode, update = role.body[-2:]
    on_other = dataclasses.replace(
        decode, reads=tuple(map(other, decode.reads)), after=tuple(f"{name}2" for name in decode.after)
    )
    body = tuple(
        dataclasses.replace(op, after_previous=("decode", "gather_values2", "gather_indices2"))
        if op.name.startswith("encode")
        else op
        for op in both
    )
    roles = (Role("one", (0,), (*body, decode, update)), Role("two", (1,), (*body, on_other, update)))
    more = (
        Buffer("values2", 4, "float64"),
        Buffer("indices2", 4, "int64"),
        Buffer("residual2", 13, "float64", role="residual"),
    )
    return dataclasses.replace(with_buffers(SPARSE, *more), roles=roles)


def with_copy(**how: Any) -> Plan:
    """Each rank copies its own gradients of a layer before they are summed."""

    def edit(body):
        copy = Local(
            name="copy",
            kernel="copy",
            after=("ready:layer4",),
            reads=(Ref("gradient", 0, 5),),
            writes=(Ref("spare", 0, 5),),
            **how,
        )
        body.insert(index_of(body, "message0"), copy)
        setting("message0", after=("copy",))(body)

    return changed(with_buffers(PLAN, SPARE), edit)


def filled(**how: Any) -> Plan:
    op = Local(name="fill", kernel="fill", writes=(Ref("spare", 0, 5),), **how)
    return changed(with_buffers(PLAN, SPARE), lambda body: body.insert(0, op))


def served_with_a_scaler() -> Plan:
    """The server takes a loss scale out of gradients that its workers, who keep the first one, have put in."""
    scaler = Buffer("scaler", 3, "float64", role="scaler")
    apply = {"kernel": "sgd_scaled", "writes": (PARAMETER, Ref("scaler", 0, 3))}
    return changed(with_buffers(SERVER, scaler), setting_inside("apply", **apply))


def decoding_a_piece() -> Plan:
    """Of one element rank 0 has none, and clears what it writes."""

    def edit(body):
        one = (Ref("values", 0, 1, True), Ref("indices", 0, 1, True))
        again = Local(name="again", kernel="decode_sum", after=("decode",), reads=one, writes=(GRADIENT,))
        body.insert(index_of(body, "update"), again)
        setting("update", after=("again",))(body)

    return changed(SPARSE, edit)


def long_and_sparse(dtype: str) -> Plan:
    """Indices of a gradient of more than 2^31 elements."""
    elements = (1 << 31) + 1
    plan = tiny.sparse(1, (elements,), 1)
    return with_types(plan, indices=dtype)


def many_groups(rails: int) -> Plan:
    """Two ranks that exchange a message on each of 60 channels and so many rails."""
    lines = [(f"c{channel}", rail) for channel in range(60) for rail in range(rails)]
    a, b = (Ref("a", 0, 1),), (Ref("b", 0, 1),)
    one = [Send(name=f"s{i}", lane="network", to=1, channel=c, rail=r, reads=a) for i, (c, r) in enumerate(lines)]
    two = [Recv(name=f"r{i}", lane="network", source=0, channel=c, rail=r, writes=b) for i, (c, r) in enumerate(lines)]
    return dataclasses.replace(
        alone(*one, ranks=2), roles=(Role("one", (0,), tuple(one)), Role("two", (1,), tuple(two)))
    )


def many_collectives(groups: int) -> Plan:
    """Pairs of ranks, each with a sum of its own: many groups, and each rank is in one of them."""
    ref = (Ref("a", 0, 1),)
    roles = tuple(
        Role(
            f"pair{i}",
            (2 * i, 2 * i + 1),
            (Collective(name="s", lane="n", ranks=(2 * i, 2 * i + 1), reads=ref, writes=ref),),
        )
        for i in range(groups)
    )
    return dataclasses.replace(alone(), ranks=2 * groups, roles=roles)


def repeated(count: int, *body: Any) -> Plan:
    return alone(Repeat(name="more", body=body, count=count), Local(name="last", kernel="join"))


FAULTS = {
    # whose gradients are in the parameters
    "a worker that never gets its server's parameters": (without_answers(), r"lost update: the parameters of 'layer4'"),
    "memory that is shared and never read": (
        changed(HOGWILD, without("fetch")),
        r"lost update: the parameters of 'layer4' .* computes with never have in them what it found before",
    ),
    "ranks that apply the gradients of one another": (
        swapped(),
        r"lost update: .* its gradients are applied to others",
    ),
    "a sum of fewer digits on one rank": (
        narrowed_on_one_rank(),
        r"applies gradients of 'layer4' to 'layer1' that another update has applied",
    ),
    "sparse sums of two lengths": (
        of_two_lengths(),
        r"applies gradients of 'layer4' to 'layer1' that another update has applied",
    ),
    "a copy of own gradients that requires a sum": (
        with_copy(requires="sum"),
        r"missing gradient: 'layer4' reaches 'copy' without the gradients of rank\(s\) 1",
    ),
    "a norm of parameters that requires gradients": (
        changed(
            with_buffers(PLAN, Buffer("norm", 1, "float64")),
            lambda body: body.insert(
                0, Local(name="n", kernel="norm", reads=(PARAMETER,), writes=(Ref("norm", 0, 1),), requires="sum")
            ),
        ),
        r"'n' missing gradient: it requires 'sum' and finds parameter",
    ),
    "nothing that requires gradients": (filled(requires="sum"), r"'fill' requires 'sum' of gradients, and reads none"),
    "zeros that are declared a sum": (
        filled(postcondition="sum"),
        r"'fill' declares 'sum' of gradients and leaves constant",
    ),
    "a dense sum that is declared sparse": (
        changed(
            with_buffers(PLAN, SPARE),
            lambda body: [
                appended(
                    Local(
                        name="copy",
                        kernel="copy",
                        after=("update",),
                        reads=(GRADIENT,),
                        writes=(Ref("spare", 0, 13),),
                        postcondition="sparse_sum",
                    )
                )(body),
                setting("forward", after_previous=("update", "copy"))(body),
            ],
        ),
        r"'copy' declares 'sparse_sum' of gradients and leaves gradient",
    ),
    "nothing that is declared a sum": (
        alone(Local(name="x", kernel="join", postcondition="sum")),
        r"'x' declares 'sum' of gradients, and writes none",
    ),
    # loss scales
    "a loss scale that nobody takes out": (
        with_buffers(PLAN, Buffer("scaler", 3, role="scaler")),
        r"'update' applies .* under another loss scale than it takes out of them: only sgd_scaled takes one out",
    ),
    "a loss scale of the server's alone": (served_with_a_scaler(), r"its scaler has changed"),
    "two loss scales": (
        with_buffers(SCALED, Buffer("more", 3, role="scaler")),
        r"buffers 'scaler' and 'more' are both of role scaler: a model has one",
    ),
    "a loss scale in float16": (
        with_types(SCALED, scaler="float16"),
        r"buffer 'scaler': a scaler has 3 elements of float32 or float64, not 3 of float16",
    ),
    "statistics in two places": (
        with_buffers(PLAN, *(Buffer(name, 3, "float64", role="statistics") for name in ("one", "two"))),
        r"buffers 'one' and 'two' are both of role statistics",
    ),
    # numbers
    "a sum of bytes with a scale": (scaled("add", "uint8", scale=0.5), r"needs ranges of one of the types float64"),
    "a cast of bytes": (scaled("cast", "uint8", "float64"), r"needs ranges of one of the types float64"),
    "a sum scaled by nothing": (scaled("add", "float64", scale=0.0), r"needs a scale of at least 1e-18, not 0"),
    "a cast scaled by next to nothing": (
        scaled("cast", "float64", scale=1e-30),
        r"a scale of at least 1e-18, not 1e-30",
    ),
    "a factor that float16 doesn't hold": (
        scaled("add", "float16", scale=65536.0),
        r"has arguments of up to 65536, and float16 holds 65504 at most",
    ),
    "a factor that float32 doesn't hold": (
        with_types(changed(PLAN, setting("update", arguments={"lr": 1e300})), gradient="float32", parameter="float32"),
        r"arguments of up to 1e\+300, and float32 holds 1e\+38 at most",
    ),
    "factors whose product float64 holds and float32 doesn't": (
        with_types(
            changed(PLAN, setting("update", arguments={"lr": 1e30, "scale": 1e30})),
            gradient="float32",
            parameter="float32",
        ),
        r"arguments of up to 1e\+60, and float32 holds 1e\+38 at most",
    ),
    "an update scaled by nothing": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "scale": 0.0})),
        r"needs a scale of at least",
    ),
    "an update that climbs": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "scale": -0.5})),
        r"kernel 'sgd' needs a scale above 0",
    ),
    "a shared add of nothing": (changed(HOGWILD, setting("push", scale=0.0)), r"'push': a scale of 0 adds nothing"),
    "a shared add that float16 doesn't hold": (
        with_types(
            changed(HOGWILD, setting("push", scale=7e4)), gradient="float16", parameter="float16", centre="float16"
        ),
        r"'push': a scale of 70000 adds nothing, or too much",
    ),
    "parameters that are whole numbers": (
        with_types(HOGWILD, gradient="int64", parameter="int64", centre="int64"),
        r"buffer 'gradient' holds a gradient, of floats, not of int64",
    ),
    "a buffer larger than any memory": (with_buffers(PLAN, Buffer("spare", 10**19)), r"elements: 1 to 1099511627776"),
    "indices that int32 doesn't hold": (
        long_and_sparse("int32"),
        r"'encode': kernel 'encode_topk' can't count 2147483649 elements in int32",
    ),
    # kernels that would read what they have written
    "a norm in the place of what it is of": (
        alone(kernel("norm", (Ref("a", 0, 2), Ref("b", 0, 2)), (Ref("b", 0, 2),))),
        r"kernel 'norm' can't write what it reads: b\[0:2\]",
    ),
    "gradients decoded into their own message": (
        changed(tiny.sparse(1, (3,), 3), setting("decode", writes=(Ref("values", 0, 3),))),
        r"kernel 'decode_sum' can't write what it reads: values\[0:3\]",
    ),
    "a decode of no message": (decoding_a_piece(), r"'again' decodes no message, and clears what it writes"),
    "a scaled update of no tensors": (
        alone(
            kernel("sgd_scaled", (Ref("a", 0, 4),), (Ref("b", 0, 4), Ref("s", 0, 3)), arguments={"lr": 0.1}),
            buffers=(Buffer("s", 3, role="scaler"),),
        ),
        r"updates all parameters at once, and a scaler",
    ),
    # names and how many
    "an operation with the name of a transfer": (
        changed(RING, lambda body: body.insert(0, Local(name="message0.send0.1", kernel="join"))),
        r"'message0.send0.1' is the name of a transfer of 'message0'",
    ),
    "a buffer with the name of what is received into": (
        with_buffers(RING, Buffer("scratch:message0", 3)),
        r"'scratch:message0' is the name of what 'message0' receives into",
    ),
    "more groups than connections": (many_groups(9), r"role 'one' is in 540 groups of ranks.*: at most 512"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (repeated(10**9), "and operations, none of which is another repeat"),
        (repeated(50_001, Local(name="x", kernel="join")), "has 50001 operations of repeats and 1 others a turn"),
    ],
)
def test_repeats_of_nothing_or_without_end_are_refused_and_not_spelled_out(plan, problem):
    with pytest.raises(InputError, match=problem):
        check(plan)


def summed_in_two_scales() -> Plan:
    """Rank 0 scales its gradients by 0.1 and 0.1 again, rank 1 by 0.01: equal but for rounding."""
    (role,) = PLAN.roles
    *body, update = role.body
    roles = []
    for rank, scales in enumerate(((0.1, 0.1), (0.01, 1.0))):
        casts = tuple(
            Local(
                name=f"scale{number}",
                kernel="cast",
                arguments={"scale": scale},
                after=("ready:layer1",),
                reads=(GRADIENT,),
                writes=(GRADIENT,),
            )
            for number, scale in enumerate(scales)
        )
        whole = Collective(name="sum", lane="network", after=("scale1",), reads=(GRADIENT,), writes=(GRADIENT,))
        computed = [op for op in body if not isinstance(op, Collective)]
        roles.append(
            Role(f"rank{rank}", (rank,), (*computed, *casts, whole, dataclasses.replace(update, after=("sum",))))
        )
    return dataclasses.replace(PLAN, roles=tuple(roles))


def clipped_by_layer(plan: Plan, after: tuple[str, ...], requires: Any) -> Plan:
    """Updates of layers, each clipped with the norm of all gradients."""
    elements = plan.tensors[-1].stop

    def edit(body):
        update = body.pop(index_of(body, "update"))
        norm = Ref("norm", 0, 1)
        whole = Ref("gradient", 0, elements)
        body.append(Local(name="norm", kernel="norm", after=after, reads=(whole,), writes=(norm,), requires=requires))
        for tensor in plan.tensors:
            body.append(
                dataclasses.replace(
                    update,
                    name=f"update:{tensor.name}",
                    after=("norm",),
                    arguments={"lr": 0.125, "clip": 0.5},
                    reads=(tiny.place("gradient", tensor), norm),
                    writes=(tiny.place("parameter", tensor),),
                )
            )
        setting(body[0].name, after_previous=tuple(f"update:{tensor.name}" for tensor in plan.tensors))(body)

    return changed(with_buffers(plan, Buffer("norm", 1, "float64")), edit)


def narrow_layer() -> Plan:
    """One layer travels as float32, the others as they are."""
    ref, half = Ref("gradient", 0, 5), Ref("half", 0, 5)

    def edit(body):
        at = index_of(body, "message0")
        message = body[at]
        body[at : at + 1] = [
            Local(name="narrow", lane="network", kernel="cast", after=message.after, reads=(ref,), writes=(half,)),
            dataclasses.replace(message, after=("narrow",), reads=(half,), writes=(half,)),
            Local(name="widen", lane="network", kernel="cast", after=("message0",), reads=(half,), writes=(ref,)),
        ]
        setting("update", after=("widen", "message1", "message2", "message3"))(body)

    return changed(with_buffers(PLAN, Buffer("half", 5, "float32")), edit)


def sparse_then_summed() -> Plan:
    """Gradients are cut to the largest on each rank, and what is left of them is summed by a ring."""
    refs = {name: Ref(name, 0, 6) for name in ("values", "indices")}

    def edit(body):
        for name in refs:
            without(f"gather_{name}")(body)
        mine = tuple(ref._replace(mine=True) for ref in refs.values())
        setting("decode", after=("encode",), reads=mine, postcondition=None)(body)
        ring = Collective(
            name="ring", lane="network", algorithm="ring", after=("decode",), reads=(GRADIENT,), writes=(GRADIENT,)
        )
        body.insert(index_of(body, "update"), ring)
        setting("update", after=("ring",))(body)

    return changed(SPARSE, edit)


IN_ORDER = {
    **{name: make() for name, make in families.families().items()},
    "scales that differ by rounding": summed_in_two_scales(),
    "clipped by layer, one of them narrow": clipped_by_layer(
        narrow_layer(), ("widen", "message1", "message2", "message3"), "sum"
    ),
    "clipped by layer, of sparse messages": clipped_by_layer(
        bases.sparse_by_layer(2), ("decode0", "decode1"), "sparse_sum"
    ),
    "a ring of sparse sums": sparse_then_summed(),
    "a ring of a single rank": tiny.synchronous(1, algorithm="ring"),
    "a copy of bytes": scaled("copy", "uint8"),
    "many groups, few of each rank": many_collectives(600),
    "indices of more than 2^31 elements": long_and_sparse("int64"),
    "many channels": many_groups(8),
    "repeats": repeated(2_000, Local(name="x", kernel="join"), Local(name="y", kernel="join")),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_plans_in_order_pass(name):
    check(IN_ORDER[name])


@pytest.mark.parametrize("name", ["a ring of sparse sums", "a ring of a single rank"])
def test_plans_in_order_pass_when_they_are_spelled_out(name):
    check(lowered(IN_ORDER[name]))


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
