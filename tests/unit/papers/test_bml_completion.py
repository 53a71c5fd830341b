"""Fig. 6 and 7 of the BML paper: completion times simulated and measured; broken inputs and odd launches are named."""

from __future__ import annotations

from math import isqrt

import pytest
import yaml

from gradsync import claims, papers
from gradsync.errors import InputError
from gradsync.papers import figures, tables
from gradsync.papers.bml_bcube import completion, states, testbed
from made_up_bml import BENCH, COUNTED, LAUNCHES, LINK, PAPER, configured, small_bench, table, write_inputs


def test_simulated_times_are_those_by_hand(bml_tables):
    """One layer is nearly all of the bytes and ready last: computation, then the transfer of it alone."""
    frame = table(bml_tables, "fig6")
    simulated = frame[frame.rung == "simulated"].set_index(["scheme", "batch", "assumption"])
    elements = 4 * (COUNTED[0][1] + COUNTED[1][1])
    for share in (1.0, 0.1):
        label = str(testbed.BandPoint(1.0, share, 0.0))
        t_f = elements / (LINK * share)
        for batch in (2, 4):
            computed = batch * 3e-3
            for scheme, gst in (("bml", 8 / 9), ("ps_p2p", 16 / 9), ("tf_ps", 16)):
                seconds = simulated.iteration_seconds[scheme, batch, label]
                assert computed + gst * t_f * 0.998 <= seconds <= computed + gst * t_f * (1 + 1e-9), (scheme, batch)
                assert simulated.jct_seconds[scheme, batch, label] == pytest.approx(1000 * seconds)
            bml, even, whole = (
                simulated.iteration_seconds[scheme, batch, label] for scheme in ("bml", "ps_p2p", "tf_ps")
            )
            assert simulated.reduction_of_ps["bml", batch, label] == pytest.approx(1 - bml / even)
            assert simulated.reduction_of_tf_ps["bml", batch, label] == pytest.approx(1 - bml / whole)


def test_no_simulated_row_lies_below_its_bounds(bml_tables):
    for name in ("fig6", "fig7"):
        frame = table(bml_tables, name)
        rows = frame[frame.rung == "simulated"]
        assert len(rows)
        assert (rows.iteration_seconds >= rows.hard_bound_seconds * (1 - 1e-9)).all()
        assert (rows.iteration_seconds >= rows.model_bound_seconds * (1 - 1e-9)).all()
        # at the nominal rate of the links, whatever share of it gradients are assumed to get
        by_share = rows.groupby([rows.batch, rows.scheme, rows.assumption.str.split(",").str[0]]).hard_bound_seconds
        assert by_share.nunique().max() == 1


def test_measured_rows_are_those_of_the_launches_and_decide_nothing(bml_tables):
    for name, model, batches in (("fig6", "lenet5", {4, 16}), ("fig7", "vgg19_eighth", {2})):
        frame = table(bml_tables, name)
        measured = frame[(frame.rung == "measured") & frame.iteration_seconds.notna()]
        assert set(measured.model) == {model}
        assert set(measured.batch_here) == batches
        assert measured.batch.isna().all()
        assert measured.jct_seconds.isna().all()
        assert measured.note.str.contains("9 ranks share 2 cores; .*not decidable on this machine").all()
        bml = measured[measured.scheme == "bml"]
        assert bml.reduction_of_ps.tolist() == pytest.approx([1 - 0.4 / 0.5] * len(bml))
        assert bml.reduction_of_tf_ps.tolist() == pytest.approx([1 - 0.4 / 0.8] * len(bml))
        # what falls on both of a pair falls on no ratio
        for column, share in (("reduction_of_ps", 0.2), ("reduction_of_tf_ps", 0.5)):
            for end in ("low", "high"):
                assert bml[f"{column}_{end}"].tolist() == pytest.approx([share] * len(bml))
        assert (measured.iteration_seconds_low < 0.95 * measured.iteration_seconds).all()
        assert measured.repeats.eq(6).all()
        assert (measured.oracle_difference == 1e-16).all()
    verdicts = claims.evaluate(PAPER, bml_tables[1] / "tables")
    measured_verdicts = {v.verdict for v in verdicts if v.rung == "measured"}
    assert measured_verdicts == {claims.UNDECIDED}


def test_a_launch_of_the_papers_own_size_is_shown_and_decides_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(LAUNCHES[0], "batch", 128)
    results = write_inputs(tmp_path / "results")
    content = yaml.safe_load(BENCH.read_text())
    bands = {"share_of_link_rate": {"value": [1.0]}, "alpha_seconds": {"value": [0.0]}}
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(content | bands))
    config = configured(training=LAUNCHES[:2], papers={"bml_bcube": {"testbed": str(tmp_path / "bench.yaml")}})
    fig6 = papers.compute("bml_bcube", "fig6", config, results)
    shown = fig6.display[fig6.display.rung == "measured"]
    assert shown["sub-minibatch"].tolist() == [128, 16]
    tables.write(fig6, results / "tables" / "bml_bcube", "fig6")
    of_fig6 = [v for v in claims.evaluate(PAPER, results / "tables") if v.table == "fig6" and v.rung == "measured"]
    assert {v.verdict for v in of_fig6} == {claims.UNDECIDED}
    assert all(v.reason == completion.ONE_NETWORK for v in of_fig6)  # 128 is run: not that it is missing


def test_bands_of_the_testbed_are_what_the_claims_go_over(bml_tables):
    full = completion.bench(configured(), "vgg19")
    assert len(full.points()) == 27
    assert full.centre() in full.points()
    assert (full.cube.hosts, isqrt(full.servers), full.switch.rails) == (9, 3, 1)
    assert full.batches == [4, 16, 32, 64]


# Broken inputs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servers": {"value": "nine"}}, r"servers\.value: needs a number"),
        ({"share_of_peak": {"lenet5": 0.3}}, r"share_of_peak\.lenet5: needs a list of numbers"),
        ({"share_of_link_rate": {"value": []}}, r"share_of_link_rate\.value: needs a list of numbers"),
        ({"bcube": {"value": 3}}, r"bcube\.value: needs a text"),
        ({"bcube": {"value": "bcube:2,2"}}, "holds 1 to 4 ranks, not 9"),
    ],
)
def test_a_broken_testbed_is_named(tmp_path, changes, message):
    results = write_inputs(tmp_path / "results")
    paper_settings = {"testbed": small_bench(tmp_path, **changes)}
    with pytest.raises(InputError, match=message) as refused:
        papers.compute("bml_bcube", "fig6", configured(papers={"bml_bcube": paper_settings}), results)
    assert "\n" not in str(refused.value)


def test_missing_inputs_are_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"counted/lenet5/workload\.json: can't be read"):
        papers.compute("bml_bcube", "fig6", configured(), tmp_path)
    monkeypatch.setattr(states, "PRINTED", tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r"nowhere\.csv: can't be read"):
        papers.compute("bml_bcube", "fig4", configured(), tmp_path)
    with pytest.raises(InputError, match=r"fig6\.csv: can't be read.*make that table first"):
        figures.write("bml_bcube", "fig6", configured(), tmp_path)


def test_a_launch_of_a_paper_that_is_not_configured_is_refused():
    with pytest.raises(InputError, match=r"training\.0\.paper: 'nosuch' is not one of this configuration: mgwfbp, bml"):
        configured(training=[{**LAUNCHES[0], "paper": "nosuch"}])


def test_launches_that_only_differ_in_their_name_are_told_apart():
    config = configured(training=LAUNCHES)
    assert [job.job for job in config.of("bml_bcube")] == ["lenet5-9-batch4", "lenet5-9-batch16", "vgg19_eighth-9"]
    assert config.of("mgwfbp") == []
    with pytest.raises(InputError, match="is there already: one entry each, or a `name`"):
        configured(training=[LAUNCHES[0], LAUNCHES[0]])
    with pytest.raises(InputError, match=r"profile_iterations"):
        configured(training=[{**LAUNCHES[0], "profile_iterations": 1}])
