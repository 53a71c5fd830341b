"""What a launch's profile measures besides all-reduces: what its schemes send, and nothing else."""

from __future__ import annotations

import pytest

from command_lines import ROOT
from gradsync.check import check
from gradsync.configuration import schemes, sent_kinds
from gradsync.costs import Linear
from gradsync.engine.clocks import priced_as
from gradsync.errors import InputError
from gradsync.measure import allreduce
from gradsync.plan import WORLD, Collective
from tiny_workloads import workload

KNOWN = schemes.load(str(ROOT / "config" / "schemes.yaml"))
RANKS, RANKS_A_NODE = 4, 2
LOAD = workload([4000, 40, 8000], [1.0, 1.0, 1.0], shapes=[(10, 100), (10,), (20, 100)])
BY_BACKEND = [name for name, scheme in KNOWN.items() if scheme.averaged and scheme.algorithm == "native"]


def planned(scheme):
    """Between two nodes of two ranks; None if it needs others."""
    try:
        scheme.refuse_ranks(RANKS, RANKS_A_NODE)
    except InputError:
        return None
    how = {"ranks_a_node": RANKS_A_NODE, "optimizer": scheme.optimizer or ("lamb" if scheme.pto else "sgd")}
    return schemes.plan(scheme, LOAD, Linear(1e-3, 1e-6), RANKS, **how)


@pytest.mark.parametrize("name", sorted(name for name in BY_BACKEND if planned(KNOWN[name])))
def test_what_a_scheme_sends_is_what_its_plan_sends(name):
    scheme = KNOWN[name]
    plan = planned(scheme)
    check(plan)
    of_gradients = {
        priced_as(op) if "@" in priced_as(op) else f"{op.kind}@{WORLD}"
        for role in plan.roles
        for op in role.flat
        if isinstance(op, Collective) and priced_as(op) not in ("all_reduce", "broadcast")
    }
    sent = sent_kinds.of_scheme(scheme, RANKS, RANKS_A_NODE)
    assert set(sent.kinds) == of_gradients
    assert sent.axes == plan.axes


def test_a_launch_measures_each_kind_once_and_on_one_mesh():
    chosen = [KNOWN[name] for name in ("wfbp", "pipelined", "dear", "hitopk", "mgwfbp")]
    sent = sent_kinds.of_schemes(chosen, RANKS, RANKS_A_NODE)
    of_all_ranks, on_axes = ("reduce_scatter@world", "all_gather@world"), ("reduce_scatter@local", "all_gather@local")
    kinds = *of_all_ranks, *on_axes, "all_gather@node"
    assert sent.words() == ["--kind", *kinds, "--axes", "node:2", "local:2"]
    assert sent_kinds.of_schemes([KNOWN["wfbp"], KNOWN["mgwfbp"]], RANKS).words() == []


def test_the_brief_effort_keeps_a_launch_short():
    """Of 24 B to 13 MB, two kinds: what `make` measures besides for LeNet-5."""
    sizes = allreduce.sizes(24, 13_000_000, allreduce.BRIEF.sizes_per_decade)
    assert 8 <= len(sizes) <= 14
    assert 2 * len(sizes) * allreduce.BRIEF.seconds_per_size <= 2.0
