"""A few ranks stand for many: check says the same of both, whatever is wrong with the plan."""

from __future__ import annotations

import random

import pytest

import tiny_plans as tiny
from changed_plans import bases
from changed_plans.changes import changed
from gradsync.check import PlanError, check, runs
from gradsync.check.few_ranks import on_few_ranks
from gradsync.errors import InputError
from gradsync.plan import Plan

MANY = {
    "synchronous": tiny.synchronous(8),
    "two lanes": tiny.two_lanes(6),
    "sharded": tiny.sharded(8),
    "summed on axes": tiny.summed_on_axes(4, 3),
    "sharded on axes": tiny.sharded_on_axes(3, 4),
    "dealt ratios": tiny.dealt_ratios(8),
    "pto": bases.scheme("mgwfbp", 7, optimizer="lamb", pto=True),
    "pto between nodes": bases.compressed("wfbp", "hitopk", 12, topology="dense_gpu:4,3", optimizer="lars", pto=True),
    "sparse": tiny.sparse(6),
    "exchanged": tiny.exchanged(6),
    "sparse between nodes": bases.compressed("wfbp", "hitopk", 12, topology="dense_gpu:4,3", density=0.5),
}
CHANGES = 120


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("synchronous", 2),
        ("sharded", 3),
        ("summed on axes", 6),
        ("sharded on axes", 6),
        ("dealt ratios", 3),
        ("pto", 3),
        ("pto between nodes", 6),
        ("sparse", 3),
        ("exchanged", 3),
        ("sparse between nodes", 6),
    ],
)
def test_few_ranks_are_followed(name, ranks):
    few = on_few_ranks(MANY[name])
    assert few.ranks == ranks < MANY[name].ranks
    assert [axis.name for axis in few.axes] == [axis.name for axis in MANY[name].axes]


def test_a_plan_that_counts_on_its_ranks_is_followed_on_all():
    for plan in (tiny.easgd_round_robin(5), tiny.in_groups(2, 4)):
        assert on_few_ranks(plan) is plan


def _refused(plan: Plan) -> str:
    try:
        check(plan)
    except (PlanError, InputError) as error:  # of a repeat that makes no sense
        return str(error)
    return ""


@pytest.mark.parametrize("name", MANY)
def test_what_is_refused_on_all_ranks_is_refused_on_few(name, monkeypatch):
    chance = random.Random(name)
    cases = [changed(MANY[name], chance) for _ in range(CHANGES)]
    on_few = [_refused(plan) for plan, _ in cases]
    monkeypatch.setattr(runs, "on_few_ranks", lambda plan: plan)
    on_all = [_refused(plan) for plan, _ in cases]
    differ = [
        (names, few, every)
        for (_, names), few, every in zip(cases, on_few, on_all, strict=True)
        if bool(few) is not bool(every)
    ]
    assert not differ, differ[0]
    assert 0 < sum(map(bool, on_all)) < CHANGES
