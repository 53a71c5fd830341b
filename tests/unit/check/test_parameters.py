"""Updates that get other gradients than all ranks agree on, or that other ranks scaled, are found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tiny_plans as tiny
from changed_plans import bases
from gradsync.check import PlanError, check
from gradsync.plan import Buffer, Collective, Local, Need, Plan, Ready, Recv, Ref, Role, Send
from odd_plans import alone, with_types
from plan_edits import appended, changed, index_of, inside, setting, setting_inside, with_buffers, without

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
HOGWILD = tiny.hogwild(2)
SPARSE = tiny.sparse(2)
SCALED = bases.scheme("mgwfbp", 2, None, "float32", loss_scaling=True, momentum=0.0)
GRADIENT, PARAMETER = Ref("gradient", 0, 13), Ref("parameter", 0, 13)
SPARE = Buffer("spare", 13, "float64")


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
        r"'update' applies .* under another loss scale than it takes out of them: only kernels that end with _scaled",
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
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)
