"""Claims and figures of the EASGD and KNL paper, from tables of made-up models."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradsync import claims
from gradsync.claims.published import load
from gradsync.drawing import style
from gradsync.files.results import TIMED
from gradsync.papers import coverage, figures
from gradsync.papers.easgd_knl.partition import BAND
from gradsync.papers.easgd_knl.scaling import band
from gradsync.papers.easgd_knl.testbed import bench, label, points
from gradsync.papers.emulated import NO_LAUNCH
from made_up_easgd import PAPER, configured


def test_claims_on_published_numbers_are_decided(easgd_tables):
    verdicts = claims.evaluate(PAPER, easgd_tables[1] / "tables")
    by_id = {v.claim: v.verdict for v in verdicts if v.rung in ("derived", "simulated")}
    expected = {
        claims.UNCONTRADICTED: ["constants-speedup", "constants-speedup-sync", "constants-sums", "constants-parts"],
        claims.CONFIRMED: ["table4-above-caffe-vgg", "models-alexnet-layers", "models-depth"],
        claims.REFUTED: [
            *("fig12-copies-most", "fig12-speedup", "fig12-speedup-8", "table1-copy-bytes", "table4-vgg-4352"),
            *("constants-tree", "constants-hidden", "constants-by-communication", "constants-abstract-cores"),
        ],
        claims.CONSTRUCTED: ["table1-batch-bytes", "fig12-copies-fit", "table2-one-message", "fig10-messages"],
        claims.UNDECIDED: ["table1-mnist", "table1-imagenet-test", "fig12-monotone", "fig6-async-easgd"],
    }
    for verdict, names in expected.items():
        assert {by_id[name] for name in names} == {verdict}, (verdict, names, [by_id[name] for name in names])


def test_nothing_timed_is_decided_and_no_configuration_is_said_to_do_it(easgd_tables):
    for verdict in claims.evaluate(PAPER, easgd_tables[1] / "tables"):
        if verdict.rung not in TIMED:
            continue
        assert verdict.verdict == claims.UNDECIDED
        emulated = (verdict.table, verdict.rung) == ("fig10", "emulated")
        assert (NO_LAUNCH if emulated else f"no {verdict.rung} rows") in verdict.reason, verdict
        nothing = {("fig10", "measured"), ("fig12", "emulated"), ("table4", "measured"), ("table4", "emulated")}
        trained = (verdict.table, verdict.rung) not in nothing
        assert trained != bool(coverage.never("easgd_knl", verdict.table, verdict.rung)), verdict


def test_points_that_are_left_out_are_of_the_band():
    file = bench(configured())
    labels = {"table4": {label(**point) for point in band(file)}}
    labels["fig12"] = {label(**point) for point in points(file, *BAND)}
    left_out = {
        claim.id: sum(claim.leaves_out(name) for name in labels[claim.table])
        for claim in load(PAPER).claims
        if claim.table in labels and claim.without
    }
    assert left_out == {"fig12-monotone": 4, "fig12-speedup": 4, "table4-vgg-worse-small": 2, "table4-small": 2}


@pytest.mark.usefixtures("as_svg_alone")
def test_figures_are_written_and_say_what_differs(easgd_tables):
    config, results = easgd_tables
    for name in ("fig10", "fig11", "fig12", "table4"):
        written = [Path(path) for path in figures.write("easgd_knl", name, config, results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        expected = {
            "fig10": "Fig. 10, AlexNet, 4 workers",
            "fig11": "Fig. 11, simulated: time to 98.8%",
            "fig12": "simulated, serial share fitted to 16 parts",
            "table4": "published, Intel Caffe",
        }[name]
        assert expected in written[0].read_text(), name
