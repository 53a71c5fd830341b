"""Claims and figures of the ASC-WFBP paper, from tables of made-up inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradsync import claims
from gradsync.claims.published import load
from gradsync.drawing import style
from gradsync.files.results import TIMED
from gradsync.papers import figures
from gradsync.papers.ascwfbp import iterations
from made_up_ascwfbp import PAPER


def test_claims_that_need_no_model_definitions_are_decided(asc_tables):
    computed = [v for v in claims.evaluate(PAPER, asc_tables[1] / "tables") if v.rung in ("derived", "simulated")]
    by_id = {v.claim: v for v in computed}
    assert len(by_id) == len(computed)
    expected = {
        claims.CONFIRMED: ["fig2-half", "fig4b-full"],
        claims.UNCONTRADICTED: ["never-worse-than-wfbp"],
        claims.REFUTED: ["theorem1-counterexample", "theorem1-random", "fig4b-not-above", "fig6-published-65"],
        claims.CONSTRUCTED: ["fig1-shortest", "fig3-closed-forms"],
    }
    derived = {"table3-parameters", "fig4b-full", "fig4b-not-above", "constants-serial", "fig6-published-65"}
    assert derived < {v.claim for v in computed if v.rung == "derived"}
    for verdict, names in expected.items():
        assert {by_id[name].verdict for name in names} == {verdict}, verdict
    assert by_id["never-worse-than-wfbp"].reason == "in 60 inputs that were tried"
    timed = [v for v in claims.evaluate(PAPER, asc_tables[1] / "tables") if v.rung in TIMED]
    assert {v.verdict for v in timed} == {claims.UNDECIDED}  # two ranks are not the paper's 32 GPUs


def test_points_that_are_left_out_are_of_the_band(asc_tables):
    """A point whose name changes would come back into the bands of the claims that it was fitted to."""
    labels = {str(each) for each in iterations.BAND}
    left_out = {claim.id: {label for label in labels if claim.leaves_out(label)} for claim in load(PAPER).claims}
    assert {name for name, points in left_out.items() if points} == {
        *("table4-seconds-wfbp", "range-over-wfbp", "table4-resnet152-over-wfbp", "table4-densenet201-over-wfbp"),
        *("table4-inceptionv4-over-wfbp", "table4-bert-base-over-wfbp"),
    }
    fitted = {str(each) for each in iterations.BAND if each.startup == iterations.FITTED}
    assert all(points == fitted for points in left_out.values() if points)
    verdicts = {v.claim: v for v in claims.evaluate(PAPER, asc_tables[1] / "tables") if v.rung == "simulated"}
    assert verdicts["table4-seconds-wfbp"].points == len(labels - fitted)


def test_every_claim_can_be_read_and_is_undecided_without_tables():
    assert all(v.verdict == claims.UNDECIDED for v in claims.evaluate(PAPER, Path("nowhere")))


@pytest.mark.usefixtures("as_svg_alone")
def test_figures_are_written_and_say_what_differs(asc_tables):
    config, results = asc_tables
    for name in figures.of("ascwfbp"):
        written = [Path(path) for path in figures.write("ascwfbp", name, config, results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        expected = {
            "fig1": "two-way simultaneous: iteration 8.60",
            "fig2": "(c) partly at once: iteration 8.00",
            "fig3": "merged gradients: iteration 21.00",
            "counterexample": "Theorem 1: merged: iteration 21.50",
            "fig4a": "a = 1 ms, b = 2 ns/B",
            "fig4b": "beyond the link from 1.66 MB",
            "fig5": "gamma = 1.60, mean error 0%",
            "table4": "Table IV: bars published, marks simulated; a fitted",
            "fig6": "Fig. 6, measured here",
            "shared_link": "iteration / model bound",
            "emulated": "No emulated launch for ascwfbp",
            "training": "densenet201 on 2 ranks",
        }[name]
        assert expected in written[0].read_text().replace("&#39;", "'"), name
