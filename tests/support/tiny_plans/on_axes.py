"""Tiny plans on a mesh of nodes with local ranks: one role for all ranks, sums axis by axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from gradsync.collectives import POSTCONDITION
from gradsync.plan import Axis, Collective, Kind, Local, Plan, Ref, Role
from tiny_plans.parts import LR, NETWORK, SIZES, layout, passes, place, plan_of


def _over(name: str, kind: Kind, over: str, ref: Ref, after: str) -> Collective:
    return Collective(
        name=name,
        lane=NETWORK,
        kind=kind,
        postcondition=POSTCONDITION[kind],
        over=over,
        after=(after,),
        reads=(ref,),
        writes=(ref,),
    )


def summed_on_axes(nodes: int, local: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Reduce-scatter inside each node, all-reduce of the pieces between nodes, all-gather inside; whole updates."""
    tensors = layout(sizes)
    body: list[Any] = []
    for op in passes(tensors, ("update",)):
        body.append(op)
        if op.verb == "ready":
            ref, of = op.writes[0], op.tensor
            body += [
                _over(f"scatter:{of}", "reduce_scatter", "local", ref, op.name),
                _over(f"sum:{of}", "all_reduce", "node", ref._replace(mine=("local",)), f"scatter:{of}"),
                _over(f"gather:{of}", "all_gather", "local", ref, f"sum:{of}"),
            ]
    elements = tensors[-1].stop
    update = Local(
        name="update",
        kernel="sgd",
        arguments={"lr": LR, "scale": 1.0 / (nodes * local)},
        after=(body[-1].name,),
        reads=(Ref("gradient", 0, elements),),
        writes=(Ref("parameter", 0, elements),),
        requires="sum",
    )
    return _plan("summed on axes", nodes, local, tensors, (*body, update))


def sharded_on_axes(nodes: int, local: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Reduce-scatter over one axis after the other, each rank updates its piece of a piece, all-gather the way back."""
    tensors = layout(sizes)
    body: list[Any] = []
    for op in passes(tensors, tuple(f"gather:{tensor.name}" for tensor in tensors)):
        body.append(op)
        if op.verb == "ready":
            ref, of = op.writes[0], op.tensor
            body += [
                _over(f"scatter_local:{of}", "reduce_scatter", "local", ref, op.name),
                _over(
                    f"scatter_node:{of}", "reduce_scatter", "node", ref._replace(mine=("local",)), f"scatter_local:{of}"
                ),
            ]
    for tensor in tensors:
        of, parameter = tensor.name, place("parameter", tensor)
        body += [
            Local(
                name=f"update:{of}",
                kernel="sgd",
                arguments={"lr": LR, "scale": 1.0 / (nodes * local)},
                # backward computes with these parameters until it ends
                after=(f"scatter_node:{of}", f"ready:{tensors[-1].name}"),
                reads=(place("gradient", tensor)._replace(mine=("local", "node")),),
                writes=(parameter._replace(mine=("local", "node")),),
                requires="shard",
            ),
            _over(f"gather_node:{of}", "all_gather", "node", parameter._replace(mine=("local",)), f"update:{of}"),
            _over(f"gather:{of}", "all_gather", "local", parameter, f"gather_node:{of}"),
        ]
    return _plan("sharded on axes", nodes, local, tensors, tuple(body))


def _plan(name: str, nodes: int, local: int, tensors: Any, body: tuple) -> Plan:
    plan = plan_of(name, tensors, [Role("worker", tuple(range(nodes * local)), body)])
    return dataclasses.replace(plan, axes=(Axis("node", nodes), Axis("local", local)))
