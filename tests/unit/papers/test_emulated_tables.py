"""Tables, figures and verdicts of emulated launches."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gradsync import claims, papers
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.errors import InputError, RunError
from gradsync.files.results import Result
from gradsync.measure.allreduce import point, to_csv
from gradsync.papers import figures, tables
from gradsync.papers.table import file, read
from made_up_launches import (
    BML,
    GOOGLENET,
    PS,
    SLOWER,
    configured,
    workload,
    write_counted,
    write_impossible,
    write_launch,
)

ROOT = Path(__file__).parents[3]


def test_the_table_is_in_seconds_of_the_paper_with_predictions_and_ratios(tmp_path):
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0, "mgwfbp": 9.0, "ddp": 12.0, "ddp_best": 9.5})
    config = configured(GOOGLENET)
    table = papers.compute("mgwfbp", "emulated", config, tmp_path)
    frame = table.frame.set_index("scheme")
    assert frame.iteration_seconds.to_dict() == {"wfbp": 2.5, "mgwfbp": 2.25, "ddp": 3.0, "ddp_best": 2.375}
    assert frame.own_iteration_seconds["wfbp"] == 10.0
    assert frame.predicted_over_emulated[["wfbp", "mgwfbp"]].tolist() == pytest.approx([0.9, 0.9])
    assert frame.predicted_over_emulated[["ddp", "ddp_best"]].isna().all()
    assert frame.over_ddp["mgwfbp"] == pytest.approx(0.75)
    assert frame.over_ddp_best["mgwfbp"] == pytest.approx(9 / 9.5)
    assert frame.over_model_bound.to_list() == pytest.approx(
        [own_seconds / 8.4 for own_seconds in (10.0, 9.0, 12.0, 9.5)]
    )
    assert frame.repeats.eq(6).all()
    assert set(frame.launch) == {"googlenet-2"}
    assert (frame.iteration_seconds_low["wfbp"], frame.iteration_seconds_high["wfbp"]) == (2.475, 2.525)
    for end in ("low", "high"):  # a moment falls on both of a pair
        assert frame[f"over_ddp_best_{end}"]["mgwfbp"] == pytest.approx(9 / 9.5)
    # 4040 bytes on 1e9 bit/s follow immediately on a backward pass of 1.5 s, so that S_max is 2
    assert frame.of_largest_speedup.to_list() == pytest.approx(
        [8.0 / own_seconds for own_seconds in (10.0, 9.0, 12.0, 9.5)]
    )
    assert (frame.startup_seconds == 0.001).all()
    assert (frame.stated_startup_seconds == 5e-4).all()
    assert "mean error 10.0%, worst 10.0%" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    figure = figures.of("mgwfbp")["emulated"](config, tmp_path)
    assert "googlenet on 2 hosts, switch\n4 Gbit/s" in [axes.get_title(loc="left") for axes in figure[0].axes]


def test_no_table_is_made_of_a_run_that_is_faster_than_possible(tmp_path):
    """8 s of computation are replayed. A plan, whose bytes are known, is held against its links too."""
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0, "ddp": 8.0})
    load = workload()
    plan = schemes.plan(schemes.Scheme(name="wfbp"), load, Linear(0.0, 0.0), 2)
    (tmp_path / "plans" / "emulated" / "googlenet-2" / "wfbp.json").write_text(plan.to_json())
    frame = papers.compute("mgwfbp", "emulated", configured(GOOGLENET), tmp_path).frame.set_index("scheme")
    assert frame.over_hard_bound.to_dict() == pytest.approx({"wfbp": 10 / 8, "ddp": 1.0})
    for name in ("wfbp", "ddp"):
        file = tmp_path / "runs" / "emulated" / "googlenet-2" / name
        result = Result.load(file / "result.json")
        result.model_copy(update={"summary": {**result.summary, "iteration_seconds": 7.9}}).save(file)
        with pytest.raises(RunError, match=f"googlenet-2, {name}, emulated: an iteration of 7.9 s lies below its hard"):
            papers.compute("mgwfbp", "emulated", configured(GOOGLENET), tmp_path)
        result.save(file)


def test_two_blocks_have_no_interval_and_decide_nothing(tmp_path):
    for ranks in (2, 4, 8):
        seconds = {"wfbp": 10.0, "single": 12.0, "mgwfbp": 9.0}
        write_launch(tmp_path, {**GOOGLENET, "ranks": ranks}, seconds, blocks=(1.0, 1.01))
    config = configured({**GOOGLENET, "ranks": [2, 4, 8], "schemes": ["wfbp", "single", "mgwfbp"], "peers": []})
    emulated = papers.compute("mgwfbp", "emulated", config, tmp_path)
    assert emulated.frame.filter(regex="_(low|high)$").isna().all(axis=None)
    assert emulated.display["iteration ms"].str.endswith("(no interval)").all()
    tables.write(papers.compute("mgwfbp", "fig6", config, tmp_path), tmp_path / "tables" / "mgwfbp", "fig6")
    every_verdict = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", tmp_path / "tables")
    verdicts = {each.claim: each for each in every_verdict if each.rung == "emulated" and each.table == "fig6"}
    assert {each.verdict for each in verdicts.values()} == {claims.UNDECIDED}
    assert "2 repeats, 6 are needed" in verdicts["fig6-order"].reason
    assert verdicts["fig6-order"].margin == pytest.approx(0.1, rel=1e-6)  # to be seen, not to be believed


def test_a_launch_that_this_machine_cannot_have_says_why_everywhere(tmp_path):
    write_impossible(tmp_path, GOOGLENET, "no testbed on this machine: no root")
    config = configured(GOOGLENET)
    table = papers.compute("mgwfbp", "emulated", config, tmp_path)
    assert table.frame.iteration_seconds.isna().all()
    assert "googlenet-2: no testbed on this machine: no root" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    figures.of("mgwfbp")["emulated"](config, tmp_path)
    speedups = papers.compute("mgwfbp", "fig6", config, tmp_path).frame
    emulated = speedups[speedups.rung == "emulated"]
    assert set(emulated.note[emulated.nodes == 2]) == {"no testbed on this machine: no root"}
    assert set(emulated.note[emulated.nodes == 8]) == {"no such emulated launch in this configuration"}


def test_speed_ups_are_over_the_computation_that_is_replayed(tmp_path):
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0, "mgwfbp": 9.0, "ddp": 12.0})
    frame = papers.compute("mgwfbp", "fig6", configured(GOOGLENET), tmp_path).frame
    emulated = frame[(frame.rung == "emulated") & (frame.nodes == 2)].set_index("scheme")
    computation_seconds = 0.5 + 1.5  # the paper's seconds
    assert emulated.speedup[["wfbp", "mgwfbp", "ddp"]].to_list() == pytest.approx(
        [2 * computation_seconds / (own_seconds / SLOWER) for own_seconds in (10.0, 9.0, 12.0)]
    )
    assert emulated.exposed_communication_seconds["wfbp"] == pytest.approx((10.0 - 8.0) / SLOWER)
    assert emulated.exposed_communication_seconds["ddp"] == pytest.approx(
        12.0 / SLOWER - computation_seconds
    )  # it does not tell
    assert pd.isna(emulated.speedup["tf_ps"])
    assert emulated.note["tf_ps"] == "tf_ps is not in the launches"


def test_launches_of_another_share_of_the_link_are_in_the_table_and_not_in_the_figures(tmp_path):
    shared = {**GOOGLENET, "name": "flows60", "flow_share": 0.6}
    shared_of_four = {**shared, "ranks": 4}  # no launch as on the paper's testbed between so many
    for launch, own_seconds in ((GOOGLENET, 10.0), (shared, 12.0), (shared_of_four, 14.0)):
        write_launch(tmp_path, launch, {"wfbp": own_seconds})
    measured = tmp_path / "profile" / "network" / "allreduce.csv"
    measured.parent.mkdir(parents=True)
    measured.write_text(to_csv([point(2, size, [0.004, 0.004]) for size in (40, 4000)], {"cores": 2}))
    config = configured(GOOGLENET, shared, shared_of_four)
    table = papers.compute("mgwfbp", "emulated", config, tmp_path).frame
    assert table[table.scheme == "wfbp"].own_iteration_seconds.to_list() == [10.0, 12.0, 14.0]
    speedups = papers.compute("mgwfbp", "fig6", config, tmp_path).frame
    shown = speedups[(speedups.rung == "emulated") & (speedups.scheme == "wfbp")].set_index("nodes")
    assert shown.index.is_unique
    assert shown.speedup[2] == pytest.approx(2 * 2.0 / (10.0 / SLOWER))
    assert pd.isna(shown.speedup[4])
    assert shown.note[4] == "no such emulated launch in this configuration"
    fitted = papers.compute("mgwfbp", "fig5b_points", config, tmp_path).frame
    assert set(fitted[fitted.rung == "emulated"].source) == {"testbed of googlenet-2"}


def test_all_reduces_of_the_testbed_are_fitted_in_seconds_of_the_paper(tmp_path):
    write_launch(tmp_path, GOOGLENET, {"wfbp": 10.0})
    write_impossible(tmp_path, {**GOOGLENET, "ranks": 4}, "no root")
    line = Linear(2e-3, 1e-8)
    sizes = [1000 * 2**number for number in range(8)]
    points = [point(2, size, [line.seconds(size)] * 2) for size in sizes]
    (tmp_path / "emulated" / "googlenet-2" / "allreduce.csv").write_text(to_csv(points, {}))
    measured = tmp_path / "profile" / "network" / "allreduce.csv"
    measured.parent.mkdir(parents=True)
    measured.write_text(to_csv(points, {"cores": 2}))
    config = configured({**GOOGLENET, "ranks": [2, 4]})
    frame = papers.compute("mgwfbp", "fig5b", config, tmp_path).frame
    (emulated,) = frame[frame.rung == "emulated"].itertuples()
    assert (emulated.nodes, emulated.source) == (2, "testbed of googlenet-2")
    assert emulated.a_seconds == pytest.approx(line.a / SLOWER)
    assert emulated.b_seconds_per_byte == pytest.approx(line.b / SLOWER)
    assert (emulated.r_squared_low, emulated.r_squared_high, emulated.repeats) == pytest.approx((1.0, 1.0, 8))
    full = papers.compute("mgwfbp", "fig5b_points", config, tmp_path).frame
    assert (full.rung == "emulated").sum() == len(sizes)


def test_claims_are_decided_on_emulated_launches(tmp_path):
    for ranks in (2, 4, 8):
        write_launch(tmp_path, {**GOOGLENET, "ranks": ranks}, {"wfbp": 10.0, "single": 12.0, "mgwfbp": 9.0})
    config = configured({**GOOGLENET, "ranks": [2, 4, 8], "schemes": ["wfbp", "single", "mgwfbp"], "peers": []})
    table = papers.compute("mgwfbp", "fig6", config, tmp_path)
    tables.write(table, tmp_path / "tables" / "mgwfbp", "fig6")
    every_verdict = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", tmp_path / "tables")
    verdicts = {each.claim: each.verdict for each in every_verdict if each.rung == "emulated"}
    assert verdicts["fig6-order"] == claims.CONFIRMED
    assert verdicts["fig6-over-synceasgd"] == claims.CONFIRMED  # 12 / 9 = 1.33 of 1.36 within 15 %
    assert verdicts["fig6-ps"] == claims.UNDECIDED


def test_bml_and_servers_are_compared_over_launches_of_their_own(tmp_path):
    write_counted(tmp_path, "lenet5")
    write_launch(tmp_path, BML, {"bml": 9.0}, "bml")
    write_launch(tmp_path, PS, {"ps_p2p": 12.0, "tf_ps": 18.0}, "ps_p2p")
    frame = papers.compute("bml_bcube", "fig6", configured(BML, PS), tmp_path).frame
    emulated = frame[frame.rung == "emulated"].set_index(["batch", "scheme"])
    bml = emulated.loc[(128, "bml")]
    assert bml.jct_seconds == 1000 * 9.0 / SLOWER
    assert (bml.reduction_of_ps, bml.reduction_of_tf_ps) == pytest.approx((0.25, 0.5))
    # of launches of their own there are no pairs: each may be anywhere in its interval
    assert (bml.jct_seconds_low, bml.jct_seconds_high) == pytest.approx((990 * 9 / SLOWER, 1010 * 9 / SLOWER))
    ends = (1 - 9 * 1.01 / (12 * 0.99), 1 - 9 * 0.99 / (12 * 1.01))
    assert (bml.reduction_of_ps_low, bml.reduction_of_ps_high) == pytest.approx(ends)
    assert pd.isna(bml.reduction_of_ps_samples)
    assert bml.launch == "lenet5-9-bml"
    assert emulated.loc[(256, "bml")].note == "no such emulated launch in this configuration"
    table = papers.compute("bml_bcube", "emulated", configured(BML, PS), tmp_path)
    assert table.frame.set_index("scheme").startup_seconds[["bml", "ps_p2p"]].tolist() == [0.001, 0.001]


def test_a_launch_that_has_not_ended_is_named(tmp_path):
    with pytest.raises(InputError, match=r"googlenet-2/status.json: can't be read"):
        papers.compute("mgwfbp", "emulated", configured(GOOGLENET), tmp_path)


def test_without_launches_the_table_says_so(tmp_path):
    table = papers.compute("mgwfbp", "emulated", configured(), tmp_path)
    assert "no emulated launch of this paper in this configuration" in table.caption
    tables.write(table, tmp_path / "tables" / "mgwfbp", "emulated")
    assert read(file(tmp_path, "mgwfbp", "emulated")).empty
    figures.of("mgwfbp")["emulated"](configured(), tmp_path)
