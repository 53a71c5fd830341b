"""Schemes whose messages are codes or factors of gradients: their parts, their lengths; nonsense is refused by name."""

from __future__ import annotations

import pytest

from configurations import scheme_file
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.errors import InputError
from tiny_workloads import workload

pytestmark = pytest.mark.usefixtures("in_the_project")

COST = Linear(1.0, 0.1)


def test_a_compressor_that_makes_codes_has_options_and_no_density(tmp_path):
    text = "four: {schedule: single, compressor: qsgd, compressor_options: {levels: 7}}\n"
    text += "kept: {compressor: qsgd, schedule: wfbp, error_feedback: true, collective: hitopk}\n"
    known = schemes.load(scheme_file(tmp_path, text))
    parts = {name: (each.collective, each.density, each.error_feedback) for name, each in known.items()}
    assert parts["four"] == ("allgather_sparse", None, False)
    assert parts["qsgd"] == ("allgather_sparse", None, False)
    assert parts["kept"] == ("hitopk", None, True)
    assert parts["sign"] == ("allgather_sparse", None, True)
    compression = known["four"].compression(2)
    assert compression.describe() == "qsgd, levels 7, bucket 512, seed 0, no error feedback"
    assert "qsgd" in known["four"].changes_training


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("{schedule: wfbp, compressor: sign, density: 0.1}", "key density: compressor 'sign' sends a code of all"),
        ("{schedule: wfbp, compressor: qsgd, compressor_options: {levels: 0}}", "option levels: a whole number"),
        (
            "{schedule: wfbp, compressor: qsgd, compressor_options: {levels: 7}, error_feedback: true}",
            "key error_feedback: compressor 'qsgd' .levels 7, bucket 512. may add 3.23 times",
        ),
        (
            "{schedule: wfbp, compressor: qsgd, compressor_options: {levels: 1, bucket: 8}, error_feedback: true}",
            "compressor 'qsgd' .levels 1, bucket 8. may add 2.83 times",
        ),
        ("{schedule: wfbp, compressor: sign, compressor_options: {levels: 3}}", "compressor 'sign' has no option"),
        ("{schedule: wfbp, compressor: exact_topk, compressor_options: {levels: 3}}", "'exact_topk' has no option"),
        ("{schedule: wfbp, compressor_options: {levels: 3}}", "key compressor_options: only with a collective of"),
    ],
)
def test_parts_that_a_code_can_not_have_are_refused_by_name(tmp_path, entry, wanted):
    with pytest.raises(InputError, match=f"scheme 'odd': .*{wanted}"):
        schemes.load(scheme_file(tmp_path, f"odd: {entry}\n"))


@pytest.mark.parametrize(("parts", "taken"), [({"compressor": "sign"}, 129), ({"compressor": "qsgd"}, 1008)])
def test_a_code_is_as_long_on_the_wire_as_its_bits(parts, taken):
    """1000 float32 elements: a bit of each and a scale; 8 bits and two norms."""
    plan = schemes.plan(schemes.Scheme(name="one", schedule="single", **parts), workload([4000], [1.0]), COST, 3)
    assert sum(plan.bytes_of(op.writes) for op in plan.communications()) == 3 * taken


# Factors


def test_a_compressor_that_factors_sums_and_has_a_rank(tmp_path):
    text = "one: {schedule: single, compressor: powersgd, compressor_options: {rank: 1}}\n"
    text += "rings: {compressor: powersgd, schedule: wfbp, error_feedback: false, collective: ring}\n"
    known = schemes.load(scheme_file(tmp_path, text))
    parts = {name: (each.collective, each.algorithm, each.error_feedback) for name, each in known.items()}
    assert parts["one"] == ("native", "native", True)
    assert parts["powersgd"] == ("native", "native", True)
    assert parts["rings"] == ("ring", "ring", False)
    assert known["one"].compression(2) is None
    assert "factors of rank 1" in known["one"].changes_training
    assert "factors of rank 2" in known["powersgd"].changes_training
    net = workload([400, 200], [1.0, 1.0], shapes=[(10, 10), (50,)])
    low_rank = known["one"].low_rank(net)
    assert low_rank is not None
    assert low_rank.describe() == "powersgd, rank 1, seed 0, error feedback"
    assert [each and (each.left, each.right) for each in low_rank.matrices] == [(10, 10), None]
    assert known["wfbp"].low_rank(net) is None
    with pytest.raises(InputError, match="'one': compressor 'powersgd' keeps or encodes gradients"):
        known["one"].refuse_scaled(True)
    with pytest.raises(InputError, match="'rings': compressor 'powersgd' keeps or encodes gradients"):
        known["rings"].refuse_scaled(True)


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("{schedule: wfbp, compressor: powersgd, density: 0.1}", "key density: compressor 'powersgd' sends factors"),
        (
            "{schedule: wfbp, compressor: powersgd, wire: float16}",
            "key wire: factors travel in the gradients' own",
        ),
        ("{schedule: wfbp, compressor: powersgd, collective: hitopk}", "collective 'hitopk' gathers sparse messages"),
        ("{schedule: dear, compressor: powersgd}", "'powersgd' all-reduces factors, and update 'decoupled' needs"),
        ("{schedule: wfbp, compressor: powersgd, compressor_options: {rank: 0}}", "option rank: a whole number, 1 to"),
        ("{schedule: wfbp, compressor: powersgd, compressor_options: {levels: 3}}", "it has: rank, seed"),
    ],
)
def test_parts_that_factors_can_not_have_are_refused_by_name(tmp_path, entry, wanted):
    with pytest.raises(InputError, match=f"scheme 'odd': .*{wanted}"):
        schemes.load(scheme_file(tmp_path, f"odd: {entry}\n"))


def test_a_workload_without_shapes_is_refused_by_name():
    scheme = schemes.Scheme(name="powersgd")
    with pytest.raises(InputError, match=r"workload 'tiny': compressor 'powersgd' needs shapes, and layer 'layer2'"):
        schemes.plan(scheme, workload([400, 200], [1.0, 1.0]), COST, 2)


def test_factors_are_as_long_on_the_wire_as_rows_and_columns():
    """A matrix of 20 times 50 and a vector of 30, float32: 2 (20 + 50) elements and 30."""
    net = workload([4000, 120], [1.0, 1.0], shapes=[(20, 5, 10), (30,)])
    plan = schemes.plan(schemes.Scheme(name="powersgd", schedule="single"), net, COST, 3)
    assert [plan.bytes_of(op.writes) for op in plan.communications()] == [4 * (2 * 20 + 30), 4 * 2 * 50]
    assert plan.messages() == [["layer2", "layer1"]]
