"""Claims and figures of the BML paper, from tables of made-up inputs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gradsync import claims, papers
from gradsync.claims.published import load
from gradsync.drawing import style
from gradsync.papers import figures, tables
from gradsync.papers.bml_bcube import completion, states
from made_up_bml import BENCH, PAPER, ROOT, configured, small_bench, write_inputs


def test_the_share_of_the_link_that_was_fitted_leaves_the_bands_of_its_claims():
    labels = [str(point) for point in completion.bench(configured(), "vgg19").points()]
    left_out = {claim.id: sum(claim.leaves_out(label) for label in labels) for claim in load(PAPER).claims}
    fitted = ("fig6-range", "fig6-range-even", "fig7-range", "fig7-range-even")
    assert {name: count for name, count in left_out.items() if count} == dict.fromkeys(fitted, 9)


def test_claims_on_links_and_pieces_are_decided(bml_tables):
    by_id = {v.claim: v for v in claims.evaluate(PAPER, bml_tables[1] / "tables") if v.rung in ("derived", "simulated")}
    counted = {name for name, verdict in by_id.items() if verdict.rung == "derived"}
    assert counted == {"switches-formula", "switches-16", "switches-1024", "switches-65536", "ports"}
    expected = {
        claims.CONFIRMED: [
            *("fig4-states", "fig4-levels", "fig4-steps", "gst-bml", "gst-ps", "gst-ring", "gst-one-kth", "fig5-half"),
            *("fig5-hierarchical", "fig5-ps-bcube-slower", "switches-16", "ports"),
        ],
        claims.REFUTED: ["fig5-ps-bcube-16", "fig5-ps-bcube-1024", "switches-1024", "switches-65536"],
        claims.CONSTRUCTED: ["switches-formula"],
    }
    for verdict, names in expected.items():
        assert {by_id[name].verdict for name in names} == {verdict}, verdict
    assert by_id["fig5-ps-bcube-16"].margin == pytest.approx(-0.19)


def test_every_claim_can_be_read_and_published_numbers_are_those_of_the_testbed():
    paper = load(PAPER)
    assert all(v.verdict == claims.UNDECIDED for v in claims.evaluate(PAPER, Path("nowhere")))
    published = {entry.id: entry.value for entry in paper.published}
    assert [published[f"fig4-step{step}"] for step in (1, 2, 3, 4)] == list(states.PUBLISHED_T_C)
    bench = yaml.safe_load(BENCH.read_text())
    assert bench["iterations"]["value"] == published["iterations"]
    # the least share of a link is what the axes leave (BM-E11)
    for figure, parameters, least in (("fig6", "lenet5-parameters", 0.083), ("fig7", "vgg19-parameters", 0.080)):
        line_rate = 2 * (8 / 9) * 4 * published[parameters] * 8 / bench["link_bits_per_second"]["value"]
        slowest = 2 * published[f"{figure}-axis"] / published["iterations"] * published[f"{figure}-smallest"]
        assert line_rate / slowest == pytest.approx(least, abs=5e-4)


def test_the_ledger_of_several_papers_names_them(bml_tables):
    verdicts = claims.evaluate(PAPER, bml_tables[1] / "tables")
    of_mgwfbp = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", bml_tables[1] / "tables")
    text = claims.page([*of_mgwfbp, *verdicts])
    assert (
        text.index("## bml_bcube")
        < text.index("`gst-bml`")
        < text.index("## Not decided")
        < text.index("`fig9a-order`")
    )
    assert "## mgwfbp" not in text  # none of its tables is there
    assert text.count("| claim |") == 1
    assert not re.search(r"[-+]0\.0 %", text)


# Figures


@pytest.mark.usefixtures("as_svg_alone")
def test_figures_are_written_and_say_what_differs(bml_tables):
    config, results = bml_tables
    for name in figures.of("bml_bcube"):
        written = [Path(path) for path in figures.write("bml_bcube", name, config, results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        svg = written[0].read_text()
        expected = {
            "fig4": "(b) after aggregation step 1: 6",
            "fig5": "BCube(32,2), Fat-Tree(16)",
            "fig6": "9 ranks share 2 cores",
            "fig7": "measured here: VGG-19 at an eighth of its channels",
            "emulated": "No emulated launch for bml_bcube",
            "training": "lenet5 on 9 ranks (batch4)",
        }[name]
        assert expected in svg
    assert "0 servers differ" not in (results / "figures" / "bml_bcube" / "fig4.svg").read_text()


def test_without_launches_figures_say_so(tmp_path):
    results = write_inputs(tmp_path / "results")
    config = configured(papers={"bml_bcube": {"testbed": small_bench(tmp_path)}})
    tables.write(papers.compute("bml_bcube", "fig6", config, results), results / "tables" / "bml_bcube", "fig6")
    svg = Path(figures.write("bml_bcube", "fig6", config, results)[0]).read_text()
    assert "Left out: measured: nothing of LeNet-5 in this configuration." in svg
    assert "measured here" not in svg  # no panel there
    assert "emulated on this machine" not in svg
