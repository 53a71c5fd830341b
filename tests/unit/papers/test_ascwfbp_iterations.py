"""Table IV and V and Fig. 6 of the ASC-WFBP paper: simulated, emulated and measured iterations, and their bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gradsync import papers
from gradsync.errors import InputError
from gradsync.papers import tables
from gradsync.papers.ascwfbp import iterations, testbed, timed_runs
from made_up_ascwfbp import TENSORS, configured, net, table, write_contention, write_counted, write_emulated
from made_up_repeats import MOMENTS


def test_fitted_start_ups_give_the_published_wfbp_and_nothing_else_is_fitted(asc_tables):
    frame = table(asc_tables, "table4")
    fitted = frame[(frame.startup == "fitted") & (frame.scheme == "wfbp")]
    assert len(fitted) == 3 * len(testbed.MODELS)
    for row in fitted.itertuples():
        assert row.iteration_seconds == pytest.approx(
            testbed.bench(configured()).published("wfbp", row.model), rel=1e-6
        )
    stated = frame[frame.startup == "stated"]
    assert set(stated.startup_seconds) == {1.4e-3}


def test_simulated_iterations_are_bounded_and_of_one_lane_whatever_contention_is(asc_tables):
    frame = table(asc_tables, "table4")
    simulated = frame[frame.rung == "simulated"]
    shared = simulated[simulated.contention != "pairwise"]
    assert (shared.iteration_seconds >= shared.model_bound_seconds * (1 - 1e-9)).all()
    assert (shared.model_bound_seconds >= shared.hard_bound_seconds * (1 - 1e-9)).all()
    assert (simulated.iteration_seconds >= simulated.hard_bound_seconds * (1 - 1e-9)).all()
    examples_of_figures = table(asc_tables, "timelines")
    assert (examples_of_figures.iteration_seconds >= examples_of_figures.model_bound_seconds * (1 - 1e-9)).all()
    # the pairwise model knows of no link, and sends faster than the paper's does
    assert (simulated.hard_bound_seconds[simulated.contention == "pairwise"] < shared.hard_bound_seconds.max()).all()
    assert (simulated.iteration_seconds >= simulated.computation_seconds).all()
    for scheme in ("wfbp", "mgwfbp", "single", "optimal"):
        by_contention = simulated[simulated.scheme == scheme].groupby(["model", "startup", "point"]).iteration_seconds
        assert by_contention.max().to_numpy() == pytest.approx(by_contention.min().to_numpy())
    labels = set(simulated.assumption)
    assert labels == {str(each) for each in iterations.BAND}
    assert {str(each) for each in iterations.SHOWN} <= labels


def test_measured_rows_are_those_of_the_launch_and_of_no_number_of_nodes(asc_tables):
    frame = table(asc_tables, "table4")
    measured = frame[(frame.rung == "measured") & frame.iteration_seconds.notna()]
    assert measured.scheme.tolist() == ["wfbp", "ascwfbp"]
    assert measured.workers.tolist() == [2, 2]
    assert measured.nodes.isna().all()
    missing = frame[(frame.rung == "measured") & frame.iteration_seconds.isna()]
    assert missing.note.str.contains("no training of .* on 32 ranks in this configuration").all()


def test_reductions_and_speedups_are_those_by_hand(asc_tables):
    frame = table(asc_tables, "fig6")
    published = frame[frame.rung == "published"].set_index(["model", "scheme"])
    # ASC-E30, E31
    assert published.reduction_over_wfbp["resnet152", "mgwfbp"] == pytest.approx(1 - (0.710 - 0.273) / (0.956 - 0.273))
    assert published.reduction_over_mgwfbp["resnet152", "ascwfbp"] == pytest.approx(1 - (0.524 - 0.273) / 0.437)
    measured = frame[(frame.rung == "measured") & (frame.scheme == "ascwfbp") & frame.computation_seconds.notna()]
    assert measured.reduction_over_wfbp.tolist() == pytest.approx([1 - 0.1 / 0.2])
    speedups = table(asc_tables, "table5")
    point = str(iterations.SHOWN[0])
    at_point = speedups[speedups.assumption == point].set_index("model")
    row = table(asc_tables, "table4").set_index(["model", "scheme", "assumption"]).loc["bert_base", "ascwfbp", point]
    assert at_point.speedup["bert_base"] == pytest.approx(32 * 0.3061 / row.iteration_seconds)
    assert at_point.share["mean"] == pytest.approx(at_point.share[list(testbed.MODELS)].mean())


def test_constants_are_held_against_the_tables(asc_tables):
    frame = table(asc_tables, "constants").set_index(["model", "assumption"])
    for model, tensors in TENSORS.items():
        row = frame.loc[model, str(testbed.CENTRE)]
        wire = 1.7e-9 * 4 * sum(elements for elements, _ in tensors)
        assert row.serial_seconds == pytest.approx(1.4e-3 * len(tensors) + wire)
        computed = testbed.bench(configured()).computation(model)
        assert row.one_message_seconds == pytest.approx(computed + 1.4e-3 + wire)
        assert row.mgwfbp_over_one_message == pytest.approx(row.published_mgwfbp_seconds / row.one_message_seconds)


def test_a_start_up_that_needs_no_fit_is_refused(tmp_path):
    """A model with so few tensors that even the stated a is less than WFBP took."""
    bench = testbed.bench(configured())
    with pytest.raises(InputError, match="resnet152: WFBP with the stated a takes no more than published"):
        iterations.startup_of(bench, "resnet152", net((4, 0.1), (4, 0.1), forward=0.09), "fitted")


# Emulated launches


def test_emulated_launches_are_in_seconds_of_the_paper_and_those_on_other_links_decide_nothing(tmp_path):
    plain = {"paper": "ascwfbp", "model": "resnet152", "ranks": 8, "dilation": 4.0, "schemes": ["wfbp", "ascwfbp"]}
    capped = {**plain, "name": "capped", "flow_share": 0.6}
    results = write_counted(tmp_path)
    write_contention(results, 1e-3, 2e-9, 1.0, cores=4)
    write_emulated(results, plain, {"wfbp": 4.0, "ascwfbp": 2.0})
    write_emulated(results, capped, {"wfbp": 8.0, "ascwfbp": 6.0})
    config = configured(emulated=[plain, capped])
    frame = pd.DataFrame(timed_runs.emulated(config, results, testbed.bench(config)))
    known = frame[frame.iteration_seconds.notna()].set_index("scheme")
    assert known.iteration_seconds.to_dict() == {"wfbp": 1.0, "ascwfbp": 0.5}
    assert known.computation_seconds.to_dict() == pytest.approx({"wfbp": 0.3, "ascwfbp": 0.3})
    assert known.exposed_communication_seconds["ascwfbp"] == pytest.approx((2.0 - 1.2) / 4)
    assert set(frame[frame.iteration_seconds.isna()].model) == {"densenet201", "inceptionv4", "bert_base"}
    # 32 B at 2 Gbit/s are hidden by backward: as many times faster as there are hosts, of four GPUs each
    assert known.largest_speedup.tolist() == [8, 8]
    table4 = papers.compute("ascwfbp", "table4", config, results)
    cell = table4.display.set_index(["model", "scheme"]).emulated["ResNet-152", "ascwfbp"]
    assert cell == "0.500 (0.450 .. 0.550), 8 hosts"
    tables.write(table4, results / "tables" / "ascwfbp", "table4")
    table5 = papers.compute("ascwfbp", "table5", config, results)
    row = table5.frame[(table5.frame.rung == "emulated") & table5.frame.share.notna()]
    assert row[["speedup", "largest_speedup", "share"]].to_numpy().tolist() == [pytest.approx([19.2, 32.0, 0.6])]
    assert table5.display.iloc[-1]["ResNet-152"] == "19.2 / 32.0: 60.0% (54.5% .. 66.7%), 8 hosts"
    assert row[["speedup_low", "share_high"]].to_numpy().tolist() == [pytest.approx([19.2 / 1.1, 0.6 / 0.9])]
    fig6 = papers.compute("ascwfbp", "fig6", config, results).frame
    fig6 = fig6[(fig6.rung == "emulated") & (fig6.scheme == "ascwfbp") & fig6.iteration_seconds.notna()].iloc[0]
    # 0.8 s of 2.8 are exposed, pair by pair, whatever the moment
    for end in ("", "_low", "_high"):
        assert fig6[f"reduction_over_wfbp{end}"] == pytest.approx(1 - 0.8 / 2.8)
    assert fig6.exposed_communication_seconds_low == pytest.approx(0.9 * 0.8 / 4)
    fig4a = papers.compute("ascwfbp", "fig4a", config, results).frame
    fig4a = fig4a[fig4a.rung == "emulated"]
    assert fig4a.a_seconds.tolist() == pytest.approx([1e-3, 1e-3])
    assert fig4a.nodes.tolist()[0] == 8
    assert fig4a.repeats.tolist() == [6, 6]
    assert fig4a.a_seconds_low.tolist() == fig4a.a_seconds_high.tolist() == pytest.approx([1e-3, 1e-3])
    assert fig4a.nodes.isna().tolist() == [False, True]
    fig4b = papers.compute("ascwfbp", "fig4b", config, results).frame
    row = fig4b[fig4b.rung == "emulated"].iloc[0]
    # 8 Gbit/s, 2 x 7/8 bytes on the link for each; two messages of 2 MiB contend
    link = 8e9 / 8 / (2 * 7 / 8)
    assert row.share_at_full == pytest.approx(2 * 2097152 / (1e-3 + 2e-9 * 2097152) / link)


@pytest.mark.parametrize("blocks", [5, 6])
def test_the_mean_share_is_known_where_every_models_is(tmp_path, blocks):
    results = write_counted(tmp_path)
    write_contention(results, 1e-3, 2e-9, 1.0, cores=4)
    plain = {"paper": "ascwfbp", "ranks": 8, "dilation": 4.0, "schemes": ["ascwfbp"]}
    launches = [{**plain, "model": model} for model in testbed.MODELS]
    for number, launch in enumerate(launches, start=1):
        moments = MOMENTS[:blocks] if number == 2 else MOMENTS
        write_emulated(results, launch, {"ascwfbp": 2.0 * number}, moments)
    config = configured(emulated=launches)
    tables.write(papers.compute("ascwfbp", "table4", config, results), results / "tables" / "ascwfbp", "table4")
    frame = papers.compute("ascwfbp", "table5", config, results).frame
    mean = frame[(frame.rung == "emulated") & (frame.model == "mean")].iloc[0]
    shares = [8 * 0.3 / (0.5 * number) / 8 for number in (1, 2, 3, 4)]
    assert mean.share == pytest.approx(np.mean(shares))
    assert mean.repeats == blocks
    if blocks == 6:
        ends = (np.mean(shares) / 1.1, np.mean(shares) / 0.9)
        assert (mean.share_low, mean.share_high) == pytest.approx(ends)
    else:
        assert np.isnan([mean.share_low, mean.share_high]).all()
