"""Ranks on axes: places, groups and pieces, by hand, by torch, and the plans that name them."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_plans as tiny
from gradsync.check import PlanError, check
from gradsync.errors import InputError
from gradsync.plan import WORLD, Axis, Mesh, Plan, Ref

TWO_BY_FOUR = Mesh(8, (Axis("node", 2), Axis("local", 4)))


def test_the_last_axis_is_the_nearest():
    assert TWO_BY_FOUR.group(5, "local") == (4, 5, 6, 7)
    assert TWO_BY_FOUR.group(5, "node") == (1, 5)
    assert [TWO_BY_FOUR.place(5, axis) for axis in ("node", "local", WORLD)] == [1, 1, 5]
    assert list(TWO_BY_FOUR.groups("node")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert list(TWO_BY_FOUR.groups()) == [tuple(range(8))]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_groups_are_those_of_a_device_mesh(sizes):
    """torch.distributed.DeviceMesh arranges ranks as `torch.arange(n).view(sizes)`."""
    torch = pytest.importorskip("torch")
    ranks = torch.arange(prod(sizes)).view(sizes)
    mesh = Mesh(prod(sizes), tuple(Axis(f"axis{i}", size) for i, size in enumerate(sizes)))
    for i, size in enumerate(sizes):
        expected = ranks.movedim(i, -1).reshape(-1, size)
        assert sorted(mesh.groups(f"axis{i}")) == sorted(map(tuple, expected.tolist()))


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 9), st.integers(1, 60), st.booleans())
def test_pieces_of_pieces_cover_a_range_once(nodes, local, start, length, swapped):
    mesh = Mesh(nodes * local, (Axis("node", nodes), Axis("local", local)))
    axes = ("local", "node") if swapped else ("node", "local")
    bounds = sorted(mesh.bounds(Ref("gradient", start, start + length, axes), rank) for rank in range(mesh.ranks))
    assert (bounds[0][0], bounds[-1][1]) == (start, start + length)
    assert all(one[1] == other[0] for one, other in pairwise(bounds))
    assert max(high - low for low, high in bounds) - min(high - low for low, high in bounds) <= 2


@pytest.mark.parametrize(
    ("axes", "problem"),
    [
        ((Axis("node", 2),), "2 (node) places for 8 ranks"),
        ((Axis("node", 2), Axis("node", 4)), "a name of its own"),
        ((Axis(WORLD, 8),), "none is 'world'"),
        ((Axis("node", 0), Axis("local", 4)), "at least one place"),
    ],
)
def test_a_mesh_that_ranks_do_not_fill_is_refused(axes, problem):
    with pytest.raises(InputError) as refused:
        Mesh(8, axes).refuse()
    assert problem in str(refused.value)


def changed(plan: Plan, name: str, **values: object) -> Plan:
    (role,) = plan.roles
    body = tuple(dataclasses.replace(op, **values) if op.name == name else op for op in role.body)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


SUMMED, SHARDED = tiny.summed_on_axes(2, 2), tiny.sharded_on_axes(2, 2)
GRADIENT = Ref("gradient", 0, 5)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (changed(SUMMED, "sum:layer4", over="rack"), "axis 'rack' does not exist"),
        (changed(SUMMED, "sum:layer4", over="local"), "have other pieces of gradient"),
        (changed(SUMMED, "sum:layer4", ranks=(0, 2)), "names no ranks"),
        (changed(SUMMED, "scatter:layer4", over=WORLD), "whose pieces may be others"),
        (changed(SUMMED, "scatter:layer4", over="node"), "have other pieces|nothing has written|reads gradient"),
        (changed(SUMMED, "sum:layer4", reads=(GRADIENT,), writes=(GRADIENT,)), "which nothing has written"),
        (changed(SUMMED, "sum:layer4", over="node", kind="broadcast", postcondition="copy"), "missing gradient"),
        (
            changed(SHARDED, "update:layer4", reads=(GRADIENT._replace(mine=("node", "local")),)),
            "needs ranges of equal length|nothing has written",
        ),
        (
            changed(SHARDED, "update:layer4", writes=(Ref("parameter", 0, 5, (WORLD,)),)),
            "whose pieces may be others",
        ),
    ],
)
def test_a_plan_that_takes_the_wrong_axis_is_refused(plan, problem):
    with pytest.raises(PlanError, match=problem):
        check(plan)


def test_a_sum_over_one_axis_alone_is_no_sum_of_all_ranks():
    plan = changed(SUMMED, "sum:layer4", over="node", kind="broadcast", postcondition="copy")
    with pytest.raises(PlanError, match="missing gradient: 'layer4' reaches 'update' without"):
        check(plan)


def test_plans_on_axes_survive_json():
    for plan in (SUMMED, SHARDED):
        assert Plan.from_json(plan.to_json()) == plan
