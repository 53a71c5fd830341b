"""Plans of phases: when one goes on with the next, and which can."""

from __future__ import annotations

import dataclasses
import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.plan.blocks import Blocks, borders_of_blocks, refuse_cuts, switches
from gradsync.plan.phases import Phase, PhasedPlan, parsed
from tiny_workloads import workload

LOAD = workload([400, 800, 1200], [1.0, 2.0, 3.0], forward=4.0)
SPARSE = {"schedule": "wfbp", "compressor": "exact_topk"}


def plan(ranks: int = 2, load=LOAD, steps=None, **parts) -> Plan:
    scheme = schemes.Scheme(name=parts.get("schedule", "wfbp"), **{"schedule": "wfbp", **parts})
    return schemes.plan(scheme, load, Linear(4.0, 0.002), ranks, **{"lr": 0.1, "momentum": 0.9, **(steps or {})})


def phased(*plans: Plan, residual="carry", shares=None) -> PhasedPlan:
    shares = shares or [1 / len(plans)] * len(plans)
    return PhasedPlan("two", residual, tuple(map(Phase, shares, plans)))


@pytest.mark.parametrize(
    ("share", "turns", "block", "wanted"),
    [
        (13 / 28, 28, 28, 13),
        (13 / 28, 176, 22, 82),  # 81.7
        (0.5, 12, 3, 6),  # blocks of three are cut nowhere
        (0.4, 12, 3, 6),  # 4.8
        (0.02, 100, 10, 2),
        (0.11, 100, 10, 10),  # 11 would leave one turn behind 10
        (0.98, 100, 10, 98),
    ],
)
def test_a_switch_is_where_no_block_is_left_with_a_single_turn(share, turns, block, wanted):
    borders = borders_of_blocks([0], turns, block)
    first = phased(plan(), plan(), shares=[share, 1 - share]).switches([share * turns], borders)
    assert first == (wanted,)
    refuse_cuts(first, borders)


@given(
    stages=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    block=st.integers(2, 9),
    cuts=st.lists(st.integers(1, 100), max_size=3),
    wanted=st.floats(0, 120),
)
def test_blocks_are_those_between_all_borders_and_switches(stages, block, cuts, wanted):
    first, turns = [0, *itertools.accumulate(stages[:-1])], sum(stages)
    borders = borders_of_blocks(first, turns, block)
    every = sorted({*borders, *(cut for cut in cuts if cut < turns)})
    blocks, begun, number = Blocks(borders, [cut for cut in cuts if cut < turns]), 0, 0
    assert blocks.turns == turns
    while begun < turns:
        assert (blocks.number(begun), begun) == (number, every[number])
        begun, number = blocks.end(begun), number + 1
    assert begun == every[-1]
    able = [  # switches that leave no single turn
        turn for turn in range(2, turns - 1) if not any(abs(turn - border) == 1 for border in around(turn, borders))
    ]
    nearest = min(able, key=lambda turn: abs(turn - wanted), default=0)
    if nearest:
        assert switches([wanted], borders, "here") == (nearest,)
    else:
        with pytest.raises(InputError, match="a phase has fewer than 2"):
            switches([wanted], borders, "here")


def around(turn, borders):
    """The border at or before a turn, and that behind it."""
    return max(border for border in borders if border <= turn), min(border for border in borders if border > turn)


def test_a_training_of_any_length_has_blocks_without_a_list_of_them():
    turns = 10**12
    tracemalloc.start()
    try:
        borders = borders_of_blocks([0, turns // 3], turns, 6)
        (first,) = switches([0.7 * turns], borders, "here")
        refuse_cuts([first], borders)
        blocks = Blocks(borders, [first])
        assert (blocks.end(first), blocks.number(first)) == (first + 6, blocks.number(first - 6) + 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20
    assert abs(first - 0.7 * turns) <= 3


def test_phases_without_iterations_are_refused():
    with pytest.raises(InputError, match="here: a phase has fewer than 2 of 2 iterations"):
        switches([1.0], [0, 2], "here")
    refuse_cuts([6, 8, 20], [0, 10, 20, 30])
    with pytest.raises(InputError, match="phases begin with iterations 6 and 7"):
        refuse_cuts([6, 7], [0, 10])


@pytest.mark.parametrize(
    ("before", "after", "residual", "reason"),
    [
        (plan(), plan(ranks=3), "carry", "it is for 3 ranks, not 2"),
        (plan(), plan(load=workload([400, 800], [1.0, 2.0], forward=4.0)), "carry", "its tensors are others"),
        (plan(), plan(steps={"accumulate": 2}), "carry", "it has 2 micro-batch(es) a step, not 1"),
        (plan(), plan(steps={"momentum": 0.0}), "carry", "only one of them keeps 'momentum'"),
        (plan(schedule="pipelined"), plan(), "carry", "ranks have other shards of 'momentum'"),
        (plan(**SPARSE), plan(**SPARSE), "flush", "a residual is flushed by a dense message"),
        (plan(**SPARSE), plan(**SPARSE, error_feedback=False), "carry", "it drops what it doesn't send"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cant_take_over_is_refused_by_name(before, after, residual, reason):
    before, after = dataclasses.replace(before, name="first"), dataclasses.replace(after, name="second")
    with pytest.raises(InputError) as refused:
        phased(before, after, residual=residual).refuse()
    assert str(refused.value).startswith("plan 'two': 'second' can't take over from 'first': ")
    assert reason in str(refused.value)


def test_plans_of_phases_survive_json_and_are_told_from_plans_of_one():
    made = phased(plan(**SPARSE), plan(schedule="single"), residual="flush")
    made.refuse()
    assert parsed(made.to_json()) == made
    assert parsed(made.to_json()).digest == made.digest != phased(*made.plans).digest
    assert parsed(made.plans[0].to_json()) == made.plans[0]
    with pytest.raises(InputError, match=r"here: plan of phases, version 9; this gradsync reads version 1"):
        parsed(dataclasses.replace(made, version=9).to_json(), "here")
    with pytest.raises(InputError, match=r"here: not a plan of phases: residual: must be 'flush' or 'carry'"):
        parsed(made.to_json().replace('"flush"', '"keep"'), "here")


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ([1.0], "1 phase(s)"),
        ([0.5, 0.4], "the sum 0.9"),
        ([1.5, -0.5], "share -0.5: must be above 0"),
        ([float("nan"), 1.0], "share nan"),
    ],
)
def test_wrong_shares_are_refused(shares, reason):
    with pytest.raises(InputError) as refused:
        phased(*[plan()] * len(shares), shares=shares).refuse()
    assert reason in str(refused.value)
