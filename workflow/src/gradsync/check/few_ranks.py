"""The same plan on fewer ranks: what is wrong with it on many is wrong there too, and is found sooner.

If all ranks do the same and the plan names them by axes alone, nothing in it depends on how many places an axis has:
pieces, groups and sums are relative. So two or three places stand for all of them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

from gradsync.collectives import NATIVE
from gradsync.plan import WORLD, Axis, Collective, Local, Plan

MOST_PLACES = 3  # of the outermost axis: the first, the last, and one between them
FEW_PLACES = 2  # of the others, and of all if no rank has a piece of its own


def on_few_ranks(plan: Plan) -> Plan:
    """The plan on as few ranks as can stand for all; itself if it must be followed on all of its ranks."""
    if not plan.symmetric:
        return plan
    body = plan.roles[0].flat
    cut = any(map(_is_cut, body))
    if any(_terms(op) not in (None, plan.ranks) for op in body):
        return plan
    axes = tuple(
        Axis(axis.name, min(axis.size, MOST_PLACES if cut and not number else FEW_PLACES))
        for number, axis in enumerate(plan.axes or (Axis(WORLD, plan.ranks),))
    )
    ranks = prod(axis.size for axis in axes)
    sizes = {WORLD: ranks, **{axis.name: axis.size for axis in axes}}
    if any(isinstance(op, Collective) and op.root >= sizes[op.over] for op in body):
        return plan
    if any(_cut_unevenly(op, sizes) for op in body) or _overlap(body):
        return plan
    few = tuple(_of_terms(_as_native(op), ranks) for op in body)
    role = dataclasses.replace(plan.roles[0], ranks=tuple(range(ranks)), body=few)
    return dataclasses.replace(plan, ranks=ranks, roles=(role,), axes=axes if plan.axes else ())


def _is_cut(op: Any) -> bool:
    """Whether ranks have pieces of their own of what the operation touches."""
    return _exchanges_pieces(op) or any(ref.mine for ref in (*op.reads, *op.writes))


def _overlap(body: Iterable[Any]) -> bool:
    """Whether cut ranges share elements without being one: where the pieces of each end depends on the places."""
    ranges: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for op in body:
        for ref in (*op.reads, *op.writes):
            if ref.mine or _exchanges_pieces(op):
                ranges[ref.buffer].add((ref.start, ref.stop))
    return any(one[1] > other[0] for each in ranges.values() for one, other in pairwise(sorted(each)))


def _exchanges_pieces(op: Any) -> bool:
    return isinstance(op, Collective) and op.kind in ("reduce_scatter", "all_gather", "all_to_all")


def _cut_unevenly(op: Any, sizes: Mapping[str, int]) -> bool:
    """Whether so many places would exchange pieces that are not equally long."""
    return (
        isinstance(op, Collective)
        and op.kind == "all_to_all"
        and any((ref.stop - ref.start) % prod(sizes[axis] for axis in (*ref.mine, op.over)) for ref in op.writes)
    )


def _as_native(op: Any) -> Any:
    """What a collective does, whatever rounds carry it between how many ranks."""
    return dataclasses.replace(op, algorithm=NATIVE, shape=()) if isinstance(op, Collective) else op


def _terms(op: Any) -> float | None:
    """The ranks that an operation counts in a sum; None if it counts none."""
    return op.arguments.get("terms") if isinstance(op, Local) else None


def _of_terms(op: Any, ranks: int) -> Any:
    """An operation that counts all ranks in a sum counts the few."""
    if _terms(op) is None:
        return op
    return dataclasses.replace(op, arguments={**op.arguments, "terms": float(ranks)})
