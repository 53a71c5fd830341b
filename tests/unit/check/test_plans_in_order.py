"""Plans that look like faults and are none pass, spelled out too."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tiny_plans as tiny
from changed_plans import bases, families
from gradsync.check import check
from gradsync.plan import WORLD, Buffer, Collective, Local, Plan, Ref, Role, SharedAdd
from gradsync.rounds.lowering import lowered
from odd_plans import long_and_sparse, many_collectives, many_groups, repeated, scaled
from plan_edits import changed, index_of, setting, with_buffers, without

PLAN = tiny.synchronous(2)
SPARSE = tiny.sparse(2)
GRADIENT, PARAMETER = Ref("gradient", 0, 13), Ref("parameter", 0, 13)


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
        mine = tuple(ref._replace(mine=(WORLD,)) for ref in refs.values())
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


@pytest.mark.parametrize("scattered", ["scatter_local:layer2", "scatter_node:layer2"])
def test_a_ring_over_one_axis_sums_some_ranks_spelled_out_too(scattered):
    """Who sums over an axis promises no sum over all ranks: that is for the next axis to complete."""
    check(lowered(changed(tiny.sharded_on_axes(2, 2), setting(scattered, algorithm="ring"))))


def test_a_shared_buffer_takes_unlocked_adds():
    plan = tiny.hogwild(3, locked=False)
    assert any(isinstance(op, SharedAdd) and not op.locked for op in plan.roles[0].body)
    check(plan)
