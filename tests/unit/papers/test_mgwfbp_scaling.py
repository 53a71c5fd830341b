"""Fig. 9 of the MG-WFBP paper and the gap to the optimum: closed forms, bounds, published numbers, broken inputs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradsync import claims, papers
from gradsync.errors import InputError
from gradsync.measure import carried
from gradsync.papers import figures
from gradsync.papers.mgwfbp import scaling
from made_up_mgwfbp_runs import ALPHA, BETA, LAYERS, REAL, ROOT
from made_up_mgwfbp_scaling import SLOPE, configured, write_inputs

pytestmark = pytest.mark.usefixtures("logs_of_scaling")


def test_optimal_is_never_slower_than_any_scheme(gap_and_fig9):
    _, written = gap_and_fig9
    frame = written["gap"].frame
    known = frame[frame.iteration_seconds.notna()]
    assert not known.empty
    assert (known.over_optimal >= 1 - 1e-12).all()
    best = known.groupby(["model", "nodes", "assumption"]).iteration_seconds.min()
    optimal = known[known.scheme == "optimal"].set_index(["model", "nodes", "assumption"]).iteration_seconds
    np.testing.assert_allclose(optimal.sort_index(), best.sort_index(), rtol=1e-12)


def test_no_simulated_row_lies_below_its_bounds(gap_and_fig9):
    _, written = gap_and_fig9
    examples = papers.compute("mgwfbp", "timelines", configured(), Path("nowhere"))
    for table in (*written.values(), examples):
        known = table.frame[table.frame.iteration_seconds.notna()]
        assert len(known)
        assert (known.iteration_seconds >= known.hard_bound_seconds * (1 - 1e-9)).all()
        assert (known.iteration_seconds >= known.model_bound_seconds * (1 - 1e-9)).all()
    gap = written["gap"].frame
    # b as fitted has an interval, so that the bound of the model is one of its lower end; at line rate both are alike
    at_rate = gap[gap.assumption.str.contains("line rate")]
    assert at_rate.model_bound_seconds.to_numpy() == pytest.approx(at_rate.hard_bound_seconds.to_numpy())


def test_every_scheme_is_there_at_every_point(gap_and_fig9):
    _, written = gap_and_fig9
    frame = written["gap"].frame
    schemes = {"naive", "wfbp", "single", "mgwfbp", "mgwfbp_as_printed", "optimal", "horovod_buckets", "fixed_buckets"}
    assert schemes | {scaling.BEST_BUCKET} <= set(frame.scheme)
    points = frame.groupby(["model", "nodes", "scheme"]).size().unstack("scheme")
    # 2 forward times x 2 slopes, for ResNet-50 x 2 units
    assert (points.loc["resnet50"] == 8).all(axis=None)
    assert (points.loc["googlenet"] == 4).all(axis=None)
    assert set(frame.nodes) == {4, 8}
    assert (frame.rung == "simulated").all()


def test_closed_forms_of_what_is_not_merged_or_all_merged(gap_and_fig9):
    _, written = gap_and_fig9
    frame = written["gap"].frame
    sizes = np.array([4 * (elements + 64) for elements, _ in LAYERS[::-1]], float)
    backward = np.array([1e-6 * microseconds for _, microseconds in LAYERS[::-1]])
    slopes = {
        "b=line rate": lambda n: 2 * (n - 1) / n * BETA,
        "b=measured": lambda n: SLOPE * (n - 1) / n / (7 / 8),
    }
    checked = 0
    for row in frame[frame.model == "googlenet"].itertuples():
        share, slope = row.assumption.split(", ")
        t_f = float(share.removeprefix("t_f=").removesuffix(" t_b")) * backward.sum()
        a, b = 2 * (row.nodes - 1) * ALPHA, slopes[slope](row.nodes)
        computation_seconds = t_f + backward.sum()
        wfbp = 0.0
        for ready, size in zip(t_f + backward.cumsum(), sizes, strict=True):  # Eq. 7
            wfbp = max(wfbp, ready) + a + b * size
        expected = {
            "naive": computation_seconds + (a + b * sizes).sum(),
            "single": computation_seconds + a + b * sizes.sum(),
            "wfbp": wfbp,
        }
        assert row.efficiency == pytest.approx(computation_seconds / row.iteration_seconds, rel=1e-9)
        assert row.speedup == pytest.approx(row.nodes * row.efficiency, rel=1e-12)
        assert row.exposed_communication_seconds == pytest.approx(row.iteration_seconds - computation_seconds, rel=1e-6)
        if row.scheme in expected:
            assert row.iteration_seconds == pytest.approx(expected[row.scheme], rel=1e-7), row
            checked += 1
    assert checked == 3 * 2 * 4


def test_resnet50_takes_the_published_time_of_one_k80(gap_and_fig9):
    _, written = gap_and_fig9
    frame = written["gap"].frame
    frame = frame[frame.model == "resnet50"]
    seconds = frame.efficiency * frame.iteration_seconds
    of_one_gpu = frame.assumption.str.endswith("one GPU")
    np.testing.assert_allclose(seconds[of_one_gpu], 32 / 49.5, rtol=1e-9)
    np.testing.assert_allclose(seconds[~of_one_gpu], 32 / 95.4, rtol=1e-9)
    assert set(frame.assumption[~of_one_gpu].str.split(", ").str[-1]) == {"2 GPUs"}


def test_fig9_is_the_part_of_the_gap_that_the_paper_shows(gap_and_fig9):
    _, written = gap_and_fig9
    gap = written["gap"].frame
    for name, model in (("fig9a", "googlenet"), ("fig9b", "resnet50")):
        expected = gap[(gap.model == model) & (gap.nodes == 4)].drop(columns="over_optimal").reset_index(drop=True)
        pd.testing.assert_frame_equal(written[name].frame.reset_index(drop=True)[expected.columns], expected)
        assert list(written[name].display.columns) == ["scheme", "N=4"]
        assert list(written[name].display.scheme) == list(dict.fromkeys(expected.scheme))


def test_a_finer_sweep_of_buckets_is_no_worse(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    best = []
    for sweep in (2, 3, 9):  # each holds the sizes of the one before
        config = configured(gap_nodes=[4], bucket_sweep=sweep)
        frame = papers.compute("mgwfbp", "gap", config, results).frame
        best_buckets = frame[(frame.scheme == scaling.BEST_BUCKET) & (frame.model == "resnet50")]
        best.append(best_buckets.iteration_seconds.to_numpy())
    for coarse, fine in pairwise(best):
        assert (fine <= coarse * (1 + 1e-12)).all()


def test_claims_are_decided_or_say_what_is_missing(gap_and_fig9):
    results, _ = gap_and_fig9
    verdicts = claims.evaluate(ROOT / "config/papers/mgwfbp/published.yaml", results / "tables")
    theorem = {verdict.claim: verdict for verdict in verdicts if verdict.claim.startswith("theorem1-google")}
    (verdict,) = theorem.values()
    assert verdict.verdict == claims.UNDECIDED  # not all the nodes are there
    assert verdict.reason


def test_what_is_carried_over_gives_a_band_for_googlenet(tmp_path, monkeypatch):
    results = write_inputs(tmp_path / "tiny")
    for name, file in REAL.items():
        monkeypatch.setattr(carried, name, file)
    frame = papers.compute("mgwfbp", "gap", configured(), results).frame
    frame = frame[frame.model == "googlenet"]
    assert frame.iteration_seconds.notna().all()
    assert (frame.over_optimal >= 1 - 1e-12).all()
    assert set(frame.assumption) == {f"t_f={t_f} t_b, b={b}" for t_f in ("0", "0.5") for b in ("line rate", "measured")}
    assert (frame.iteration_seconds >= 0.2053).all()  # the backward pass alone


# Broken inputs


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("profile/resnet50/workload.json", None, r"workload\.json: can't be read"),
        ("profile/resnet50/workload.json", "{}", r"workload\.json: not a workload"),
    ],
)
def test_a_broken_input_of_the_gap_is_named(tmp_path, file, content, message):
    results = write_inputs(tmp_path / "tiny")
    if content is None:
        (results / file).unlink()
    else:
        (results / file).write_text(content)
    with pytest.raises(InputError, match=message) as refused:
        papers.compute("mgwfbp", "gap", configured(), results)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("table", [carried.LAYERS, carried.ALLREDUCES], ids=lambda path: path.stem)
def test_a_torn_row_of_what_is_carried_over_is_named_by_the_table_made_of_it(tmp_path, monkeypatch, table):
    torn = tmp_path / table.name
    torn.write_text((ROOT / table).read_text().rstrip()[:-12] + "x\n")
    monkeypatch.setattr(carried, next(name for name, file in REAL.items() if file == table), torn)
    line = len(torn.read_text().splitlines())
    with pytest.raises(InputError, match=rf"{table.name}, line {line}: not a row .*: restore the file"):
        papers.compute("mgwfbp", "gap", configured(), write_inputs(tmp_path / "tiny"))


def test_what_the_authors_logged_is_read_without_a_network(tmp_path, monkeypatch):
    monkeypatch.delenv("GRADSYNC_EXTERNAL_DATA", raising=False)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a table asked the network"))
    results = write_inputs(tmp_path / "tiny")
    frame = papers.compute("mgwfbp", "gap", configured(), results).frame
    assert set(frame.model) == {"googlenet", "resnet50"}
    assert frame.iteration_seconds.notna().all()


@pytest.mark.parametrize(
    "content",
    [None, "", "garbage\n1\n", "a,b\n1,2,3,4\n", "\x00\x01"],
    ids=["missing", "empty", "other", "torn", "nul"],
)
def test_a_broken_gap_is_named_by_what_reads_it(tmp_path, content):
    path = tmp_path / "tables" / "mgwfbp" / "gap.csv"
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_text(content)
    for compute in (
        lambda: papers.compute("mgwfbp", "fig9a", configured(), tmp_path),
        lambda: figures.write("mgwfbp", "gap", configured(), tmp_path),
    ):
        with pytest.raises(InputError, match=r"gap\.csv: ") as refused:
            compute()
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "figures").exists()
