"""What `check` passes runs on real ranks as the oracle says; what is changed at random is refused or harmless.

The same with more plans: `python tests/changed_plans --plans 10000`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from changed_plans import bases, judge
from changed_plans.changes import CHANGES, changed
from changed_plans.rank_pool import Pool
from gradsync.check import check
from gradsync.plan import Plan

PLANS = bases.every()
CHANGED, SEED = 600, 7


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Pool]]:
    by_ranks = {ranks: Pool(ranks) for ranks in (1, 2, 3, 4)}
    yield by_ranks
    for pool in by_ranks.values():
        pool.close()


@pytest.mark.parametrize("name", PLANS)
def test_plans_in_order_run_as_the_oracle_says(name, pools):
    verdict = judge.judged(name, PLANS[name], PLANS[name], [], pools)
    assert (verdict.kind, verdict.run) == (judge.HARMLESS, True), verdict.why
    check(PLANS[name])


@pytest.mark.deep
def test_changed_plans_are_refused_or_the_same_on_real_ranks(pools):
    verdicts: Counter[str] = Counter()
    kinds: set[str] = set()
    for number in range(CHANGED):
        chance = random.Random(f"{SEED} {number}")
        name = chance.choice(list(PLANS))
        plan, names = changed(PLANS[name], chance)
        verdict = judge.judged(name, PLANS[name], plan, names, pools)
        assert verdict.kind != judge.MISSED, f"plan {number}, {name}: {', '.join(names)}: {verdict.why}"
        verdicts[verdict.kind] += 1
        verdicts["run"] += verdict.run
        kinds |= set(names)
    assert kinds == set(CHANGES)
    # neither of both is rare, or nothing was tried
    assert verdicts[judge.REFUSED] > CHANGED / 3
    assert verdicts["run"] > CHANGED / 6


def test_a_judge_that_sees_a_miss_says_so(monkeypatch, pools):
    """Without the check of contents a dropped message is accepted, and the judge finds the other values."""
    monkeypatch.setattr("changed_plans.judge.check", lambda plan: None)
    whole = PLANS["synchronous 2"]
    (role,) = whole.roles
    body = tuple(op for op in role.body if op.name != "message1")
    plan = Plan(whole.name, whole.ranks, whole.tensors, whole.buffers, (type(role)(role.name, role.ranks, body),))
    verdict = judge.judged("synchronous 2", whole, plan, ["drop"], pools)
    assert verdict.kind == judge.MISSED
    assert "other values than before the change" in verdict.why


def test_ranks_that_hang_or_crash_are_told_and_started_anew(pools):
    """A receive that nobody sends hangs; the next plan runs again."""
    plan = bases.exchange()
    one, two = plan.roles
    silent = type(two)(two.name, two.ranks, tuple(op for op in two.body if op.name != "send"))
    broken = Plan(plan.name, plan.ranks, plan.tensors, plan.buffers, (one, silent))
    ran = pools[2].run(broken.to_json(), 2, False, 3.0)
    assert "did not end within 3 s" in ran.fault or "waits for 'send'" in ran.fault or "KeyError" in ran.fault
    again = judge.judged("exchange", plan, plan, [], pools)
    assert (again.kind, again.run) == (judge.HARMLESS, True), again.why
