"""Fig. 5 of the MG-WFBP paper: how large gradients are, and what an all-reduce takes, measured and as logged."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync import claims, papers
from gradsync.errors import InputError
from gradsync.papers.mgwfbp import allreduce_times
from made_up_mgwfbp_runs import ALPHA, configured, make, profile, verdict_of, write_inputs, write_network

pytestmark = pytest.mark.usefixtures("logs_of_runs")


def test_shares_count_tensors_within_the_papers_range(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    frames = make(results, configured(), "fig5a", "fig5a_tensors")
    summed = frames["fig5a"].set_index("model")
    assert summed.share_in_range.to_dict() == pytest.approx({"googlenet": 2 / 3, "resnet50": 2 / 4})
    assert summed.share_below.to_dict() == pytest.approx({"googlenet": 1 / 3, "resnet50": 1 / 4})
    assert summed.largest.to_dict() == {"googlenet": 200_000, "resnet50": 6_000_000}
    assert list(frames["fig5a_tensors"].parameters) == [50, 1000, 200_000, 64, 2048, 2_359_296, 6_000_000]
    assert verdict_of(results, "fig5a-small-layers", "derived").verdict == claims.REFUTED  # a half is not most
    resnet50 = results / "profile" / "resnet50" / "workload.json"
    resnet50.write_text(profile("resnet50", [64, 2048, 2_359_296]).to_json())
    make(results, configured(), "fig5a")
    assert verdict_of(results, "fig5a-small-layers", "derived").verdict == claims.CONFIRMED


def test_a_line_is_found_again_and_the_papers_startups_confirm_its_claims(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    startups = {2: 2 * ALPHA, 4: 6 * ALPHA, 8: 14 * ALPHA}
    write_network(results, startups, cores=8)
    frame = make(results, configured(), "fig5b", "fig5b_points")["fig5b"]
    measured = frame[frame.rung == "measured"].set_index("nodes")
    assert measured.a_seconds.to_dict() == pytest.approx(startups, rel=1e-6)
    assert list(measured.b_seconds_per_byte) == pytest.approx([1e-9] * 3, rel=1e-9)
    assert list(measured.r_squared) == pytest.approx([1.0] * 3, abs=1e-9)
    for claim in ("fig5b-startup-4", "fig5b-startup-8", "fig5b-affine"):
        assert verdict_of(results, claim, "measured").verdict == claims.CONFIRMED
    write_network(results, {2: 1e-4, 4: 2e-4, 8: 3e-4}, cores=8, bend=1e-15)
    make(results, configured(), "fig5b")
    for claim in ("fig5b-startup-4", "fig5b-startup-8", "fig5b-affine"):
        assert verdict_of(results, claim, "measured").verdict != claims.CONFIRMED


def test_more_ranks_than_cores_decide_nothing_but_their_points_are_there(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    frames = make(results, configured(), "fig5b", "fig5b_points")
    measured = frames["fig5b"][frames["fig5b"].rung == "measured"].set_index("nodes")
    assert measured.a_seconds.notna().to_dict() == {2: True, 4: False, 8: False}
    assert set(frames["fig5b_points"].nodes) == {2, 4, 8}
    shared = verdict_of(results, "fig5b-startup-4", "measured")
    assert (shared.verdict, shared.reason) == (
        claims.UNDECIDED,
        "4 ranks share 2 cores: not decidable on this machine",
    )


def test_an_intercept_lost_in_the_noise_is_no_startup(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    write_network(results, {2: 1e-6}, cores=2, bend=2e-16)  # the line through a parabola begins below 0
    frame = make(results, configured(), "fig5b")["fig5b"]
    row = frame[frame.rung == "measured"].iloc[0]
    assert np.isnan(row.a_seconds)
    assert "can't be told from 0" in row.note
    assert row.r_squared < 1


def test_the_interval_of_an_intercept_covers_it_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    sizes = np.linspace(1e3, 1e6, 30)
    hits = 0
    for _ in range(400):
        low, high = allreduce_times.intercept_interval(sizes, 1e-4 + 1e-9 * sizes + rng.normal(0, 2e-5, 30))
        hits += low <= 1e-4 <= high
    assert 0.91 <= hits / 400 <= 0.99
    assert allreduce_times.intercept_interval(sizes[:2], sizes[:2]) == (-np.inf, np.inf)


def test_logs_are_published_and_decide_no_claim(tmp_path):
    results = write_inputs(tmp_path / "tiny")
    (results / "profile" / "network" / "allreduce.csv").write_text(
        "# cores: 2\nranks,bytes,seconds,seconds_low,seconds_high\n"
        + "".join(f"2,{size},{1e-4 + 1e-9 * size},1e-4,1e-2\n" for size in range(1000, 9000, 1000))
    )
    frame = make(results, configured(), "fig5b", "fig5b_points")["fig5b"]
    published = frame[frame.rung == "published"].set_index(["source", "nodes"])
    assert published.a_seconds["allreduce8.log", 8] == pytest.approx(7e-4, rel=1e-6)
    assert published.a_seconds["the paper's text", 8] == 633.64e-6
    assert published.b_seconds_per_byte["layer log", 8] == pytest.approx(3.8e-9, rel=1e-2)
    assert set(frame.nodes[frame.rung == "measured"]) == {2}
    caption = papers.compute("mgwfbp", "fig5b", configured(), results).caption
    assert "grows 7.00 times from 2 to 8 nodes" in caption
    assert "measured row with nodes=8" in verdict_of(results, "fig5b-startup-8", "measured").reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read"),
        ("", "can't be read"),
        ("# cores: 2\nbytes,seconds\n1,2\n", "no column ranks, seconds_low, seconds_high"),
        ("ranks,bytes,seconds,seconds_low,seconds_high\n2,4,1,1,1\n", "no number of cores"),
        ("# cores: 2\nranks,bytes,seconds,seconds_low,seconds_high\n2,4,fast,1,1\n", "a cell that is no number"),
        ("# cores: 2\nranks,bytes,seconds,seconds_low,seconds_high\n2,4,1,1,1\n", "measure at least two"),
    ],
)
def test_broken_all_reduce_times_are_named(tmp_path, content, message):
    results = write_inputs(tmp_path / "tiny")
    path = results / "profile" / "network" / "allreduce.csv"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    for name in ("fig5b", "fig5b_points"):
        with pytest.raises(InputError, match=message) as refused:
            papers.compute("mgwfbp", name, configured(), results)
        assert "\n" not in str(refused.value)
