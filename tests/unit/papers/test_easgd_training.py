"""Tables of the EASGD and KNL paper that are made of training: from made-up launches, with numbers found by hand."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import made_up_elastic
from gradsync import claims, papers
from gradsync.engine import breakdown
from gradsync.papers import tables
from gradsync.papers.coverage import Coverage
from gradsync.papers.easgd_knl import batch_size, error_curves, exchanges, gpu_node, time_parts
from gradsync.papers.easgd_knl.drawing import FIGURES
from gradsync.papers.easgd_knl.testbed import bench
from gradsync.papers.table import file, read
from gradsync.plan.trace import Span
from made_up_easgd import PAPER, configured
from made_up_elastic import FOR_BACKWARD, SEEDS, TURN_SECONDS

IDEAL = {"constants": "original", "overlap": "ideal"}
FIRST = "constants original, overlap ideal, learning_rate 0.02, moving_rate 0.1, batch 32"


def frame_of(tables: tuple, name: str, **keys: object) -> pd.DataFrame:
    frame = read(file(tables[1], "easgd_knl", name), ["rung"])
    for key, value in keys.items():
        frame = frame[frame[key] == value]
    return frame


# The GPU node of the paper


def test_parts_of_an_iteration_are_those_of_table_3():
    file = bench(configured())
    parts = gpu_node.constants(file, "original")
    star = gpu_node.iteration("original_easgd_no_overlap", 4, IDEAL, file)
    # data, forward and backward, to the worker and back, the update of the master; that of the worker goes on beside
    assert star.seconds == pytest.approx(69e-6 + 6.07e-3 + 2 * 3.52e-3 + 0.552e-3, rel=1e-3)
    original = gpu_node.iteration("original_easgd", 4, IDEAL, file)
    assert original.seconds == pytest.approx(2 * 3.52e-3 + 0.552e-3, rel=1e-3)  # forward and backward are hidden
    tree = 2 * 2 * parts.gpu_gpu  # down and up in a tree of four
    second = gpu_node.iteration("sync_easgd2", 4, IDEAL, file)
    assert second.parts[breakdown.AMONG_WORKERS] == pytest.approx(tree, rel=0.01)
    assert second.parts[breakdown.DATA] == pytest.approx(4 * 69e-6)
    fitted = gpu_node.iteration("sync_easgd3", 4, {**IDEAL, "overlap": "fitted"}, file)
    assert second.seconds - fitted.seconds == pytest.approx(0.41 * second.parts[breakdown.AMONG_WORKERS])
    third = gpu_node.iteration("sync_easgd3", 4, IDEAL, file)
    assert second.seconds - third.seconds == pytest.approx(parts.for_backward + 4 * 69e-6, rel=0.01)  # the shorter one


def test_exchanges_of_the_fit_take_what_they_are_fitted_to():
    parts = gpu_node.constants(bench(configured()), "sync")
    assert gpu_node.exchange_seconds("sync_easgd1", 4, parts) == pytest.approx(2.31e-3)
    assert gpu_node.exchange_seconds("sync_easgd2", 4, parts) == pytest.approx(1.312e-3)
    fast = gpu_node.constants(bench(configured()), "pcie fast")
    assert fast.cpu_gpu == fast.gpu_gpu == pytest.approx(10e-6 + 1.72e6 / 12e9)


def test_transfers_are_counted_on_plans():
    counts = {
        name: [gpu_node.transfers_in_a_row(name, nodes) for nodes in (2, 4, 8)]
        for name in ("original_easgd", "sync_easgd1", "sync_easgd3", "hogwild_easgd")
    }
    assert counts == {
        "original_easgd": [4, 8, 16],
        "sync_easgd1": [4, 6, 8],  # the CPU is one more in the tree
        "sync_easgd3": [2, 4, 6],
        "hogwild_easgd": [2, 2, 2],
    }


def test_workers_that_are_served_at_once_are_counted_on_a_trace():
    def span(rank: int, operation: str, verb: str, start: float, end: float, source: int | None = None) -> Span:
        return Span(rank, 0, operation, verb, "network", start, end, 4, source)

    plan = gpu_node.planned("original_easgd", 2)
    both = [span(0, "centre1", "send", 0, 2), span(0, "take1", "recv", 1, 2)]  # of one worker
    assert exchanges.served_at_once(plan, [*both, span(0, "centre2", "send", 2, 3)]) == 1
    assert exchanges.served_at_once(plan, [*both, span(0, "centre2", "send", 1.5, 3)]) == 2
    served = [
        span(0, "take", "recv_any", 0, 9, 2),
        span(0, "give", "reply", 9, 10),
    ]  # a wait is no service
    assert exchanges.served_at_once(gpu_node.planned("async_sgd", 2), served) == 1


# Tables of launches


def test_an_iteration_of_original_easgd_is_that_of_one_worker(easgd_launches):
    rows = frame_of(easgd_launches, "table3", rung="measured").set_index("scheme")
    assert rows.iteration_seconds["original_easgd"] == pytest.approx(TURN_SECONDS / 4)
    assert rows.iteration_seconds["sync_easgd1"] == pytest.approx(TURN_SECONDS)
    # 0.02 + 0.001 seed + 0.9 exp(-turns / 20) falls to 0.03 after 90 to 110 turns of ten
    turns = json.loads(rows.iterations_samples["sync_easgd1"])
    assert turns == [90.0, 100.0, 100.0, 100.0, 110.0, 110.0]
    assert json.loads(rows.iterations_samples["original_easgd_no_overlap"]) == [4 * each for each in turns]
    assert rows.seconds.isna()["original_easgd"]  # two seeds do not get there
    assert rows.io_share["sync_easgd1"] == pytest.approx(0.1 / (0.3 + 100 * TURN_SECONDS * 1.02), rel=0.05)
    assert rows.for_backward_share["sync_easgd1"] == 0.6


def test_points_are_launches_of_their_own_and_spread_is_their_mean(easgd_launches):
    rows = frame_of(easgd_launches, "fig6", rung="measured", scheme="sync_easgd3").set_index("point")
    assert rows.iterations.to_dict() == {1: 40, 2: 80, 3: 120, 4: 160, 5: 200}
    assert rows.error.is_monotonic_decreasing
    assert (rows.repeats == len(SEEDS)).all()
    spread = frame_of(easgd_launches, "stability", rung="measured", scheme="sync_easgd3").iloc[0]
    assert spread.points == 5
    assert spread.spread == pytest.approx(0.001 * (35 / 12) ** 0.5)
    assert spread.spread_low < spread.spread < spread.spread_high


def test_simulated_trainings_are_the_measured_ones_at_the_pace_of_the_gpu_node(easgd_launches):
    keys = {"scheme": "original_easgd", "level": 1}
    measured = frame_of(easgd_launches, "time_to_error", rung="measured", **keys).iloc[0]
    simulated = frame_of(easgd_launches, "time_to_error", rung="simulated", assumption=FIRST, **keys).iloc[0]
    turns = 100  # until 0.1, of every seed
    assert measured.seconds_least == pytest.approx(measured.seconds)
    pace = gpu_node.iteration("original_easgd", 4, IDEAL, bench(configured()))
    assert simulated.seconds == pytest.approx(4 * turns * pace.seconds)
    assert len(frame_of(easgd_launches, "time_to_error", rung="simulated", **keys)) == 8  # the middle: all of the band


def test_a_seed_that_does_not_get_there_counts_with_its_whole_run(easgd_launches):
    row = frame_of(easgd_launches, "time_to_error", rung="measured", scheme="async_sgd", level=3).iloc[0]
    assert pd.isna(row.seconds)
    assert row.there == 0
    assert row.seconds_least == pytest.approx(200 * TURN_SECONDS * 1.025)


def test_one_seed_again_and_again_is_told_apart_bit_by_bit(easgd_launches):
    rows = frame_of(easgd_launches, "determinism").set_index("scheme")
    assert rows.distinct_results.to_dict() == {"sync_easgd1": 1, "sync_easgd3": 1, "async_sgd": 4}
    assert rows.difference["sync_easgd3"] == pytest.approx(1e-5 / 4)
    assert rows.difference["sync_easgd1"] == 0


def test_more_machines_are_compared_at_the_time_of_one(easgd_launches):
    rows = frame_of(easgd_launches, "fig13", rung="measured").set_index(["nodes", "share"])
    # one machine: 100 turns; the loss is twice the error
    assert rows.moment[1, 1.0] == pytest.approx(100 * TURN_SECONDS * 1.025)
    assert rows.loss[4, 0.5] < rows.loss[2, 0.5] < rows.loss[1, 0.5]
    assert rows.seconds[1, 1.0] == pytest.approx(rows.moment[1, 1.0])
    assert rows.seconds[4, 1.0] < rows.seconds[2, 1.0] < rows.seconds[1, 1.0]


def test_a_batch_has_its_best_rates(easgd_launches):
    rows = frame_of(easgd_launches, "batch").set_index("batch")
    assert rows.lr.to_dict() == {32: 0.1, 1024: 0.1}
    assert rows.samples_per_second[1024] == pytest.approx(1024 / TURN_SECONDS)
    assert rows.epochs[32] == pytest.approx(30 / (1438 // 32))


# What can't be decided


def test_times_of_ranks_that_share_cores_are_shown_and_decide_nothing(tmp_path):
    config = configured(elastic=[{**made_up_elastic.launches()[4], "seeds": [0, 1]}])
    made_up_elastic.write_runs(config, tmp_path, cores=2)
    for compute in (time_parts.table3, error_curves.time_to_error):
        frame = compute(config, tmp_path).frame
        measured = frame[frame.rung == "measured"]
        assert measured.seconds.isna().all()
        assert measured.observed_seconds.notna().any()
        assert measured.note.str.contains("share 2 cores").all()
    late = frame[frame.rung == "simulated"]
    assert late.seconds.isna().all()  # of two seeds
    assert (late.note.str.contains("2 seed") & late.observed_seconds_least.notna()).all()


def emulated(tmp_path, waits):
    hosts = {"testbed": "switch", "rate": 2e8, "compute_seconds": waits}
    here = made_up_elastic.launches()[4]
    config = configured(elastic=[{**here, "methods": ["original_easgd", "sync_easgd3"], **hosts}])
    made_up_elastic.write_runs(config, tmp_path, cores=2)
    return config


def test_between_emulated_hosts_whose_computation_waits_times_decide(tmp_path):
    config = emulated(tmp_path, FOR_BACKWARD)
    frame = time_parts.table3(config, tmp_path).frame
    rows = frame[frame.rung == "emulated"].set_index("scheme")
    assert rows.seconds["sync_easgd3"] == pytest.approx(100 * TURN_SECONDS * 1.025)
    assert set(rows.launch) == {"lenet5-4"}  # trainings of one seed are pairs
    assert rows.assumption["original_easgd"].endswith("batch 32, hosts switch of 200 Mbit/s, computation 0.075 s")
    for name, compute in (("table3", time_parts.table3), ("time_to_error", error_curves.time_to_error)):
        assert set(compute(config, tmp_path).frame.rung) >= {"emulated"}
        made = Coverage("easgd_knl", name, "emulated", config)
        wanted = {"scheme": "sync_easgd3", "nodes": 4} | ({"level": 1} if name == "time_to_error" else {})
        assert not made.lacking([wanted])
        assert not Coverage("easgd_knl", name, "measured", config).rows
        assert {row.cores for row in made.rows} == {0}  # however few there are


def test_between_hosts_whose_computation_comes_late_they_do_not(tmp_path):
    frame = time_parts.table3(emulated(tmp_path, 0.9 * FOR_BACKWARD), tmp_path).frame
    rows = frame[frame.rung == "emulated"].set_index("scheme")
    assert rows.seconds.isna().all()
    assert rows.observed_seconds["sync_easgd3"] > 0


def test_the_same_training_between_hosts_is_a_row_of_its_own(tmp_path):
    here = {**made_up_elastic.launches()[4], "methods": ["sync_easgd3"]}
    config = configured(elastic=[here, {**here, "name": "hosts", "testbed": "switch", "compute_seconds": FOR_BACKWARD}])
    made_up_elastic.write_runs(config, tmp_path)
    for compute in (time_parts.table3, error_curves.fig6, error_curves.time_to_error, error_curves.stability):
        frame = compute(config, tmp_path).frame
        assert frame.rung.value_counts()["emulated"] == frame.rung.value_counts()["measured"]
        keys = [key for key in ("scheme", "assumption", "point", "level") if key in frame]
        assert not frame[frame.rung == "simulated"].duplicated(keys).any()  # only what was measured is simulated


def test_a_configuration_says_which_rows_it_makes():
    config = configured(elastic=made_up_elastic.launches())
    fig6 = Coverage("easgd_knl", "fig6", "measured", config)
    assert not fig6.lacking([{"scheme": "async_easgd", "nodes": 4, "point": point} for point in (1, 5)])
    assert fig6.lacking([{"scheme": "async_easgd", "nodes": 8, "point": 1}])
    assert fig6.cores([{"scheme": "async_easgd", "nodes": 4, "point": 1}]) == 5  # with the master
    assert not Coverage("easgd_knl", "batch", "measured", config).lacking([{"batch": 1024}])
    few = configured(elastic=[{**made_up_elastic.launches()[4], "seeds": [0]}])
    assert not Coverage("easgd_knl", "table3", "measured", few).rows


@pytest.mark.parametrize(("target", "levels"), [(0.1, {1}), (0.05, {1, 2}), (0.03, {1, 2, 3})])
def test_a_training_that_stops_at_an_error_has_no_rows_of_smaller_ones(target, levels):
    stops = {"stop_at_target": True, "target_errors": [0.1, target]}
    config = configured(elastic=[{**made_up_elastic.launches()[4], **stops}])
    rows = Coverage("easgd_knl", "time_to_error", "measured", config).rows
    assert {row.keys["level"] for row in rows} == levels
    assert bool(Coverage("easgd_knl", "table3", "measured", config).rows) is (levels == {1, 2, 3})


def test_a_method_at_another_rate_is_drawn_and_says_so(tmp_path):
    base = {**made_up_elastic.launches()[4], "methods": ["original_easgd", "sync_easgd3", "async_sgd"]}
    own = {**base, "name": "momentum", "methods": ["async_msgd"], "lr": 0.002, "rho": 50}
    config = configured(elastic=[base, own])
    made_up_elastic.write_runs(config, tmp_path)
    for name in ("curves", "fig6"):
        tables.write(papers.compute("easgd_knl", name, config, tmp_path), tmp_path / "tables" / "easgd_knl", name)
    figure, data = FIGURES["fig8"](config, tmp_path)
    assert set(data.scheme) == {"original_easgd", "sync_easgd3", "async_sgd", "async_msgd"}
    labels = {line.get_label() for axes in figure.axes for line in axes.lines}
    assert {"Async MSGD, learning rate 0.002", "Async SGD"} <= labels


def test_figure_11_has_the_methods_of_all_launches_at_one_point(tmp_path):
    base = {**made_up_elastic.launches()[4], "methods": ["original_easgd", "sync_easgd3"]}
    more = {**base, "name": "table3", "methods": ["original_easgd_no_overlap", "sync_easgd1", "sync_easgd2"]}
    config = configured(elastic=[base, more, {**more, "name": "other", "lr": 0.1}])
    made_up_elastic.write_runs(config, tmp_path)
    made = papers.compute("easgd_knl", "table3", config, tmp_path)
    tables.write(made, tmp_path / "tables" / "easgd_knl", "table3")
    _, data = FIGURES["fig11"](config, tmp_path)
    measured = data[data.rung == "measured"]
    assert sorted(measured.scheme) == sorted([*base["methods"], *more["methods"]])
    assert measured.assumption.nunique() == 1


def test_rates_that_are_kept_are_no_pairs_with_the_best_ones(tmp_path, monkeypatch):
    config = configured(elastic=[made_up_elastic.launches()[7]])
    made_up_elastic.write_runs(config, tmp_path)

    def best(tried):  # the smallest rate of a batch of 32, the largest of one of 1024
        sizes = {run.launch.batch for run in tried.values()}
        return min(tried) if sizes == {32} else max(tried)

    monkeypatch.setattr(batch_size, "_best", best)
    rows = batch_size.batch(config, tmp_path).frame.set_index("batch")
    assert rows.lr.to_dict() == {32: 0.02, 1024: 0.1}
    assert rows.seconds_kept_samples.notna().to_dict() == {32: True, 1024: False}
    assert rows.seconds_kept_low.notna().all()


@pytest.mark.parametrize("scheme", ["async_sgd", "async_msgd"])
def test_the_middle_of_momentum_is_a_tenth_of_the_rate(tmp_path, scheme):
    point = {"lr": 0.002, "rho": 50} if scheme == "async_msgd" else {}
    config = configured(elastic=[{**made_up_elastic.launches()[4], "methods": [scheme], **point}])
    made_up_elastic.write_runs(config, tmp_path)
    frame = error_curves.time_to_error(config, tmp_path).frame
    assert len(frame[(frame.rung == "simulated") & (frame.level == 1)]) == 8  # all of the band


def test_data_without_levels_make_no_rows():
    launch = {**made_up_elastic.launches()[4], "data": "cifar10", "data_folder": "/data"}
    config = configured(elastic=[launch])
    for table in ("table3", "time_to_error", "fig6", "stability"):
        assert not Coverage("easgd_knl", table, "measured", config).rows


def test_rows_of_two_rates_decide_no_claim_together():
    base = made_up_elastic.launches()[4]
    own = {**base, "name": "momentum", "methods": ["async_msgd"], "lr": 0.002, "rho": 50}
    wanted = [{"scheme": scheme, "nodes": 4, "level": 1} for scheme in ("async_msgd", "async_sgd")]
    for launches, lacks in (([base], 0), ([{**base, "methods": ["async_sgd"]}, own], 1)):
        made = Coverage("easgd_knl", "time_to_error", "measured", configured(elastic=launches))
        assert len(made.lacking(wanted)) == lacks
        assert all(not made.lacking([each]) for each in wanted)


def test_parts_of_this_machine_are_compared_at_one_rate_of_a_part(easgd_launches):
    here = frame_of(easgd_launches, "fig12", rung="measured").set_index("parts")
    assert set(here.assumption) == {"learning_rate_of_a_part 0.02, batch_of_a_part 32"}
    assert (here.accuracy == 0.97).all()
    assert here.iterations.to_dict() == {1: 100, 2: 40}
    # the median of the seeds, between 2 and 3
    assert here.seconds[1] == pytest.approx(100 * TURN_SECONDS * 1.025)
    assert {row.keys["parts"] for row in Coverage("easgd_knl", "fig12", "measured", easgd_launches[0]).rows} == {1, 2}


def test_claims_on_training_are_decided(easgd_launches):
    verdicts = {(v.claim, v.rung): v for v in claims.evaluate(PAPER, easgd_launches[1] / "tables")}
    expected = {
        ("table3-order", "simulated"): claims.CONFIRMED,
        ("exchange-one-at-a-time", "measured"): claims.CONFIRMED,
        ("fig6-longer-is-better", "measured"): claims.CONFIRMED,
        ("fig6-async-easgd", "simulated"): claims.CONFIRMED,
        ("fig8-sync-original", "measured"): claims.CONFIRMED,
        ("table3-speedup", "simulated"): claims.REFUTED,
        ("batch-throughput", "measured"): claims.CONFIRMED,
        ("batch-large", "measured"): claims.UNDECIDED,
        ("fig12-two-parts", "measured"): claims.CONFIRMED,
        ("fig12-speedup", "measured"): claims.UNDECIDED,  # no launch of 16 parts
        ("table3-speedup", "emulated"): claims.UNDECIDED,
    }
    assert {key: verdicts[key].verdict for key in expected} == expected


def test_figures_show_both_clocks(easgd_launches):
    config, results = easgd_launches
    for name, title in (("fig6", "Fig. 6.3, simulated"), ("fig8", "Fig. 8, measured"), ("fig13", "Fig. 13, simulated")):
        figure, data = FIGURES[name](config, results)
        assert any(title in axes.get_title(loc="left") for axes in figure.axes)
        assert set(data.rung) == {"measured", "simulated"}


def test_figures_show_emulated_trainings_alone(tmp_path):
    hosts = {"testbed": "switch", "compute_seconds": FOR_BACKWARD}
    of_methods, machines = made_up_elastic.launches()[4], made_up_elastic.launches()[6]
    of_methods |= {"methods": ["original_easgd", "sync_easgd3"], "stop_at_target": True, "target_errors": [0.03]}
    config = configured(elastic=[{**of_methods, **hosts}, {**machines, **hosts}])
    made_up_elastic.write_runs(config, tmp_path)
    for name in ("curves", "fig6", "table3", "fig13"):
        tables.write(papers.compute("easgd_knl", name, config, tmp_path), tmp_path / "tables" / "easgd_knl", name)
    for name in ("fig6", "fig8", "fig11", "fig13"):
        figure, data = FIGURES[name](config, tmp_path)
        assert any("emulated" in axes.get_title(loc="left") for axes in figure.axes), name
        assert "emulated" in set(data.rung)
        assert "measured" not in set(data.rung)
