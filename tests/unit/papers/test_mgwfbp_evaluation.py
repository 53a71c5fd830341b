"""Fig. 6 to 8 of the MG-WFBP paper on made-up runs: published and measured rows, accuracy, figures, broken inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradsync import claims, papers
from gradsync.errors import InputError
from gradsync.papers import figures
from gradsync.papers.labels import REFERENCES
from gradsync.papers.mgwfbp import convergence, speedups, testbed
from made_up_mgwfbp_runs import GOOGLENET_ALONE, ROOT, RUN, configured, make, verdict_of, write_inputs, write_run

pytestmark = pytest.mark.usefixtures("logs_of_runs")
TABLES = ("fig5a", "fig5a_tensors", "fig5b", "fig5b_points", "fig6", "fig6b", "fig7", "fig7b", "fig8")
FIGURES = ("fig5a", "fig5b", "fig6", "fig7", "fig8")


def test_published_rows_are_those_of_the_authors_script():
    rows = pd.DataFrame(speedups._published("googlenet", configured())).set_index(["scheme", "nodes"])
    seconds = rows.iteration_seconds
    assert seconds["wfbp", 8] / seconds["mgwfbp", 8] == pytest.approx(75.68 / 62.9, rel=1e-12)
    assert seconds["single", 8] / seconds["mgwfbp", 8] == pytest.approx(75.68 / 55.58, rel=1e-12)
    assert rows.speedup["wfbp", 2] == pytest.approx(2 * 74.83 / 81.68, rel=1e-12)
    assert rows.computation_seconds["single", 4] == pytest.approx(GOOGLENET_ALONE, rel=1e-12)
    assert rows.exposed_communication_seconds["single", 4] == pytest.approx(32 / 57.67 - 32 / 81.68, rel=1e-9)
    resnet50 = pd.DataFrame(speedups._published("resnet50", configured())).set_index(["scheme", "nodes"])
    assert resnet50.speedup["mgwfbp", 8] == pytest.approx(8 * 70.8251 / 76.85, rel=1e-12)
    assert resnet50.speedup["wfbp", 4] == pytest.approx(4 * 73.679 / 76.85, rel=1e-12)
    assert resnet50.iteration_seconds["single", 2] == pytest.approx(32 / 60.0, rel=1e-12)


def test_runs_are_measured_rows_and_more_ranks_than_cores_say_so(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    write_run(results, "googlenet", 2, cores=2)
    write_run(results, "googlenet", 4, cores=2)
    config = configured(training=[RUN, {**RUN, "ranks": 4}])
    frame = make(results, config, "fig6")["fig6"]
    measured = frame[frame.rung == "measured"].set_index(["nodes", "scheme"])
    assert measured.speedup[2, "wfbp"] == pytest.approx(2 * 0.15 / 0.2)
    assert measured.speedup_low[2, "wfbp"] == pytest.approx(2 * 0.15 / 0.2 / 1.1)
    assert measured.exposed_communication_seconds[2, "ddp"] == pytest.approx(0.6 - 0.15)
    assert measured.exposed_communication_seconds_high[2, "ddp"] == pytest.approx(1.1 * 0.45)
    assert measured.repeats[2, "ddp"] == 6
    assert measured.launch[2, "ddp"] == "googlenet-2"
    assert np.isnan(measured.speedup[4, "wfbp"])
    assert measured.note[4, "wfbp"] == "4 ranks share 2 cores: a speed-up is not decidable on this machine"
    assert measured.note[8, "wfbp"] == "no training of googlenet on 8 ranks in this configuration"
    assert not set(REFERENCES) & set(frame.scheme)
    assert "4 ranks share" in verdict_of(results, "fig6-order", "measured").reason
    assert measured.note[2, "tf_ps"] == "no tf_ps in the launch of 2 ranks"
    assert verdict_of(results, "fig6-ps", "measured").verdict == claims.UNDECIDED
    display = papers.compute("mgwfbp", "fig6", config, results).display
    cells = display[(display.rung == "measured") & (display.scheme == "wfbp")].iloc[0]
    assert (cells["N=2"], cells["N=4"], cells["N=8"]) == ("1.50 (1.36 .. 1.67)", "-", "-")


def test_enough_cores_decide_the_claims_of_the_runs(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    for n in testbed.NODES:
        write_run(results, "googlenet", n, cores=8)
    make(results, configured(training=[{**RUN, "ranks": n} for n in testbed.NODES]), "fig6")
    assert verdict_of(results, "fig6-order", "measured").verdict == claims.REFUTED  # 0.4 s against 0.2 s of wfbp
    assert verdict_of(results, "fig6-over-wfbp", "measured").verdict == claims.REFUTED


def test_fig8_holds_both_models_at_every_point(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    frames = make(results, configured(), "fig6", "fig7", "fig8")
    frame = frames["fig8"]
    simulated = frame[frame.rung == "simulated"]
    points = simulated.groupby("model").assumption.agg(lambda labels: tuple(sorted(set(labels))))
    assert points["googlenet"] == points["resnet50"]
    assert len(points["googlenet"]) == 9
    total = simulated.computation_seconds + simulated.exposed_communication_seconds
    np.testing.assert_allclose(total, simulated.iteration_seconds, rtol=1e-6)
    published = frame[frame.rung == "published"].set_index(["model", "scheme", "nodes"])
    assert published.exposed_communication_seconds["resnet50", "wfbp", 8] == pytest.approx(32 / 58.2 - 32 / 76.85)
    assert speedups.PARAMETER_SERVER not in set(frame.scheme)
    for claim in ("fig8-smallest", "fig8-very-small", "fig8-synceasgd-grows"):
        decided = verdict_of(results, claim, "simulated")
        assert decided.points == 9
        # by construction on a line, or counted only with its first values (config/papers/mgwfbp/published.yaml)
        assert decided.counted == (claim == "fig8-very-small")


def test_accuracy_counts_complete_epochs_over_seeds(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    write_run(results, "resnet50", 4, cores=2)
    config = configured(training=[{"model": "resnet50", "ranks": 4}])
    frames = make(results, config, "fig6b", "fig7b")
    assert frames["fig6b"].empty
    frame = frames["fig7b"][frames["fig7b"].scheme == "wfbp"]
    assert list(frame.epoch) == [1, 2, 3]
    assert list(frame.accuracy) == pytest.approx([0.35, 0.55, 0.75])
    assert list(frame.accuracy_least) == pytest.approx([0.3, 0.5, 0.7])
    assert list(frame.accuracy_most) == pytest.approx([0.4, 0.6, 0.8])
    assert set(frame.seeds) == {2}
    assert set(frames["fig7b"].scheme) == {"wfbp", "single", "mgwfbp", "optimal", "ddp"}
    assert "not ImageNet" in papers.compute("mgwfbp", "fig7b", config, results).caption


def test_convergence_of_nothing_says_so(tmp_path):
    table = papers.compute("mgwfbp", "fig6b", configured(), tmp_path)
    assert list(table.frame.columns) == convergence.COLUMNS
    assert "no whole epoch of googlenet" in table.caption


# Broken inputs


@pytest.mark.parametrize(
    ("file", "content", "table", "message"),
    [
        ("runs/train/googlenet-2/schemes.json", None, "fig6", "schemes.json"),
        ("runs/train/googlenet-2/schemes.json", "3", "fig6b", "schemes.json"),
        ("runs/train/googlenet-2/wfbp/result.json", "{", "fig6", "result.json"),
        ("runs/train/googlenet-2/wfbp/metrics.csv", "a\n1\n", "fig6b", "no column seed, step"),
        ("runs/train/googlenet-2/wfbp/metrics.csv", "seed,step,epoch,accuracy\n0,0,0,x\n", "fig6b", "no number"),
        ("profile/googlenet/workload.json", None, "fig5a", "workload.json"),
        ("profile/resnet50/workload.json", "{}", "fig7", "not a workload"),
        ("tables/mgwfbp/fig7.csv", None, "fig8", "fig7.csv"),
    ],
)
def test_a_broken_input_is_named(tmp_path, file, content, table, message):
    results = write_inputs(tmp_path / "tiny")
    write_run(results, "googlenet", 2, cores=2)
    config = configured(training=[RUN])
    make(results, config, "fig6", "fig7")
    if content is None:
        (results / file).unlink()
    else:
        (results / file).write_text(content)
    with pytest.raises(InputError, match=message) as refused:
        papers.compute("mgwfbp", table, config, results)
    assert "\n" not in str(refused.value)


def test_a_testbed_without_throughputs_is_named(tmp_path):
    text = (ROOT / "config/papers/mgwfbp/testbed.yaml").read_text()
    path = tmp_path / "cluster.yaml"
    path.write_text(text.replace("one_node: 163.36", "one_node: fast"))
    results = write_inputs(tmp_path / "tiny")
    with pytest.raises(InputError, match=r"cluster\.yaml: drawn_throughput\.googlenet\.one_node: needs a number"):
        papers.compute("mgwfbp", "fig6", configured(papers={"mgwfbp": {"testbed": str(path)}}), results)
    path.write_text(text.replace("one_node: 163.36", "one_node: 16336"))
    with pytest.raises(InputError, match=r"less than the 0\.0525 s of the logged backward pass"):
        papers.compute("mgwfbp", "fig6", configured(papers={"mgwfbp": {"testbed": str(path)}}), results)


# Figures


@pytest.mark.usefixtures("as_svg_alone")
@pytest.mark.parametrize("runs", [True, False])
def test_figures_show_what_is_there_and_say_what_is_not(tmp_path, runs):
    results = write_inputs(tmp_path / "tiny")
    jobs = [{"model": model, "ranks": n} for model in testbed.MODELS for n in (2, 4)] if runs else []
    for job in jobs:
        write_run(results, str(job["model"]), int(job["ranks"]), cores=2)
    config = configured(training=jobs)
    make(results, config, *TABLES)
    svg = {}
    for name in FIGURES:
        written = [Path(path) for path in figures.write("mgwfbp", name, config, results)]
        assert all(path.stat().st_size for path in written)
        svg[name] = written[0].read_text()
    assert "67% in the shade" in svg["fig5a"]
    assert "allreduce8.log" in svg["fig5b"]
    assert "share 2 cores" in svg["fig5b"]
    for name, model in (("fig6", "GoogLeNet"), ("fig7", "ResNet-50")):
        assert ("measured here, 95 %" in svg[name]) is runs
        assert ("not ImageNet" in svg[name]) is runs
        assert (f"no whole epoch of {model}" in svg[name]) is not runs
    assert ("GoogLeNet, measured" in svg["fig8"]) is runs
    assert "ResNet-50, published" in svg["fig8"]
