"""Tiny plans in which ranks split what they send or compute: sparse messages, shards, norms."""

from __future__ import annotations

from collections.abc import Sequence

from gradsync.plan import WORLD, Buffer, Collective, Local, Need, Plan, Ref, Role
from tiny_plans.parts import DECAY, LR, NETWORK, SIZES, TRUST, layout, passes, place, plan_of


def sparse(ranks: int, sizes: Sequence[int] = SIZES, k: int = 3) -> Plan:
    """Each rank sends the k largest of gradient + residual; everybody sums what all have sent."""
    tensors = layout(sizes)
    gradient, parameter, residual = (Ref(name, 0, tensors[-1].stop) for name in ("gradient", "parameter", "residual"))
    values, indices = Ref("values", 0, k * ranks), Ref("indices", 0, k * ranks)
    body = (
        *passes(tensors),
        Local(
            name="encode",
            kernel="encode_exact_topk",
            reads=(gradient,),
            writes=(values._replace(mine=(WORLD,)), indices._replace(mine=(WORLD,)), residual),
        ),
        *(
            Collective(
                name=f"gather_{ref.buffer}",
                lane=NETWORK,
                kind="all_gather",
                postcondition="gather",
                after=("encode",),
                reads=(ref,),
                writes=(ref,),
            )
            for ref in (values, indices)
        ),
        Local(
            name="decode",
            kernel="decode_sum",
            after=("gather_values", "gather_indices"),
            reads=(values, indices),
            writes=(gradient,),
            postcondition="sparse_sum",
        ),
        Local(
            name="update",
            kernel="sgd",
            arguments={"lr": LR},
            reads=(gradient,),
            writes=(parameter,),
            requires="sparse_sum",
        ),
    )
    messages = (Buffer("values", k * ranks, "float64"), Buffer("indices", k * ranks, "int64"))
    return plan_of("sparse", tensors, [Role("worker", tuple(range(ranks)), body)], messages, ["residual"])


def dealt_ratios(ranks: int, elements: int = 3) -> Plan:
    """A layer a rank: each computes the ratio of its own layer, all gather them, then LARS on all layers."""
    tensors = layout([elements] * ranks)
    gradient = Ref("gradient", 0, tensors[-1].stop)
    ratios = Ref("ratios", 0, ranks)
    of_both = {"weight_decay": DECAY, "scale": 1.0 / ranks}
    body: tuple = (
        *passes(tensors),
        Collective(
            name="sum", lane=NETWORK, after=(f"ready:{tensors[-1].name}",), reads=(gradient,), writes=(gradient,)
        ),
        Local(
            name="ratios",
            kernel="lars_ratios",
            arguments={"trust": TRUST, **of_both},
            after=("sum",),
            reads=tuple(place(buffer, tensor) for tensor in tensors for buffer in ("parameter", "gradient")),
            writes=(ratios._replace(mine=(WORLD,)),),
            requires="sum",
        ),
        Collective(
            name="gather",
            lane=NETWORK,
            kind="all_gather",
            postcondition="gather",
            after=("ratios",),
            reads=(ratios,),
            writes=(ratios,),
        ),
        *(
            Local(
                name=f"update:{tensor.name}",
                kernel="lars",
                arguments={"lr": LR, **of_both},
                after=("gather",),
                reads=(place("gradient", tensor), Ref("ratios", i, i + 1)),
                writes=(place("parameter", tensor),),
                requires="sum",
            )
            for i, tensor in enumerate(tensors)
        ),
    )
    role = Role("worker", tuple(range(ranks)), body)
    return plan_of("dealt ratios", tensors, [role], [Buffer("ratios", ranks, "float64")])


def sharded(ranks: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Reduce-scatter in backward, each rank updates its piece, all-gather before the next forward of that layer."""
    tensors = layout(sizes)
    forward = tensors[::-1]
    body: list = [
        Need(
            name=f"forward:{tensor.name}",
            layer=tensor.name,
            reads=(place("parameter", tensor),),
            after_previous=(f"gather:{tensor.name}",),
        )
        for tensor in forward
    ]
    for ready in passes(tensors)[1:]:
        body += [
            ready,
            Collective(
                name=f"scatter:{ready.tensor}",
                lane=NETWORK,
                kind="reduce_scatter",
                postcondition="shard",
                after=(ready.name,),
                reads=ready.writes,
                writes=ready.writes,
            ),
        ]
    for tensor in forward:
        parameter = place("parameter", tensor)
        body += [
            Local(
                name=f"update:{tensor.name}",
                kernel="sgd",
                arguments={"lr": LR, "scale": 1.0 / ranks},
                after=(f"scatter:{tensor.name}",),
                reads=(place("gradient", tensor)._replace(mine=(WORLD,)),),
                writes=(parameter._replace(mine=(WORLD,)),),
                requires="shard",
            ),
            Collective(
                name=f"gather:{tensor.name}",
                lane=NETWORK,
                kind="all_gather",
                postcondition="gather",
                after=(f"update:{tensor.name}",),
                reads=(parameter,),
                writes=(parameter,),
            ),
        ]
    return plan_of("sharded", tensors, [Role("worker", tuple(range(ranks)), tuple(body))])
