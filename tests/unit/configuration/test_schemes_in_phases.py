"""Schemes with phases: the project's own is the paper's recipe; nonsense is refused by name."""

from __future__ import annotations

import pytest

from configurations import ROOT, scheme_file
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.errors import InputError
from tiny_workloads import workload

pytestmark = pytest.mark.usefixtures("in_the_project")

COST = Linear(1.0, 0.1)


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("{phases: [{scheme: hitopk, share: 0.5}, {scheme: wfbp, share: 0.4}]}", "the sum 0.9: it must be 1"),
        ("{phases: [{scheme: hitopk, share: 1}]}", "1 phase(s): a scheme with phases has at least 2"),
        (
            "{phases: [{scheme: hitopk, share: 1.5}, {scheme: wfbp, share: -0.5}]}",
            "phase 2: share -0.5: must be above 0",
        ),
        (
            "{phases: [{scheme: hitopk, share: a half}, {scheme: wfbp, share: 0.5}]}",
            "a number or a fraction like 13/28",
        ),
        ("{phases: [{scheme: hitopk, share: 1/0}, {scheme: wfbp, share: 0.5}]}", "a number or a fraction like 13/28"),
        ("{phases: [{scheme: nosuch, share: 0.5}, {scheme: wfbp, share: 0.5}]}", "phase 1: scheme 'nosuch' does not"),
        ("{phases: [{scheme: odd, share: 0.5}, {scheme: wfbp, share: 0.5}]}", "scheme 'odd' has phases of its own"),
        (
            "{phases: [{scheme: easgd, share: 0.5}, {scheme: wfbp, share: 0.5}]}",
            "phase 1: scheme 'easgd' does not exist",
        ),
        ("{phases: [{scheme: sync_easgd1, share: 0.5}, {scheme: wfbp, share: 0.5}]}", "applies no mean gradient"),
        (
            "{phases: [{scheme: wfbp, share: 0.5}, {scheme: dear, share: 0.5}]}",
            "'dear' can't take over from 'wfbp': its update is 'decoupled', not 'ssgd'",
        ),
        (
            "{phases: [{scheme: hitopk, share: 0.5}, {scheme: exact_topk, share: 0.5}], residual: flush}",
            "'exact_topk' can't take over from 'hitopk': residual flush needs a dense message",
        ),
        (
            "{phases: [{scheme: wfbp, share: 0.5}, {scheme: single, share: 0.5}], residual: flush}",
            "key residual: no phase",
        ),
        ("{phases: [{scheme: hitopk, share: 0.5}, {scheme: wfbp, share: 0.5}], residual: keep}", "residual: must be"),
        (
            "{phases: [{scheme: hitopk, share: 0.5}, {scheme: wfbp, share: 0.5}], density: 0.1}",
            "key density: belongs to one",
        ),
    ],
)
def test_phases_that_make_no_sense_are_refused_by_name(tmp_path, entry, wanted):
    with pytest.raises(InputError) as refused:
        schemes.load(scheme_file(tmp_path, f"odd: {entry}\n"))
    assert "scheme 'odd': " in str(refused.value)
    assert wanted in str(refused.value)


def test_the_recipe_of_the_public_cloud_paper_is_sparse_first_and_dense_later():
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    recipe = known["mstopk_then_dense"]
    assert [part.name for part in recipe.parts] == ["mstopk_sgd", "torus2d_sgd"]
    assert [phase.share for phase in recipe.phases] == [13 / 28, 15 / 28]
    assert recipe.changes_training.startswith("mstopk_sgd: 0.001 of the gradients")
    assert recipe.averaged
    assert schemes.pick(known, [recipe.name], "here", 4, in_phases=True) == [recipe]
    with pytest.raises(InputError, match="device cpu"):  # its dense phase is made of transfers
        schemes.pick(known, [recipe.name], "here", 4, "cuda", in_phases=True)
    with pytest.raises(InputError, match="has phases, which only launches of `training` have"):
        schemes.pick(known, [recipe.name], "here", 4)
    for every in (schemes.pick(known, None, "here", 4), schemes.pick(known, "native", "here", 4)):
        assert not any(scheme.phases for scheme in every)  # another thing is trained: it is named, or not meant
    with pytest.raises(InputError, match="'mstopk_then_dense' has phases: each has a plan of its own"):
        schemes.plan(recipe, workload([400], [1.0]), COST, 4)
