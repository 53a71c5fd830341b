"""Fig. 4 and 5 of the ASC-WFBP paper: lines, gamma and capacity of measured contention, with their intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradsync import papers
from gradsync.costs.contention_points import Contention
from gradsync.costs.contention_points import ContentionPoint as Measured
from made_up_ascwfbp import configured, table, write_contention


def test_what_was_measured_has_its_line_capacity_and_gamma(asc_tables):
    a, b = 1e-3, 2e-9
    line = table(asc_tables, "fig4a").set_index("source").loc["this machine"]
    assert (line.a_seconds, line.b_seconds_per_byte, line.r_squared) == pytest.approx((a, b, 1.0))
    assert line.points == 5  # of 7: those from 8 KiB to 4 MiB
    both = table(asc_tables, "fig4b").set_index("source")
    assert both.capacity["this machine"] == pytest.approx(1.25, rel=1e-3)
    assert both.gamma["this machine"] == pytest.approx(1.6, rel=1e-3)
    assert both.largest_gain["this machine"] == pytest.approx(2 * (a + b * 8192) / (a + 1.6 * b * 8192))
    errors = table(asc_tables, "fig5").set_index("source").loc["this machine"]
    assert errors.mean_error == pytest.approx(0, abs=1e-9)
    assert errors.gamma == pytest.approx(1.6)


def write_noisy_contention(results: Path, sweeps: int) -> None:
    """Sweeps of which each is disturbed, and each of its times."""
    rng = np.random.default_rng(2)
    sizes = np.array([8192, 65536, 524288, 2097152, 4194304])
    disturbed = rng.lognormal(0, 0.05, (sweeps, 1, 1)) * rng.lognormal(0, 0.02, (sweeps, 2, 5))
    times = np.stack([1e-3 + 2e-9 * sizes, 1e-3 + 3e-9 * sizes]) * disturbed  # (sweeps, lanes, sizes)
    points = [
        Measured(lanes=k + 1, bytes=int(size), seconds=tuple(times[:, k, i]))
        for k in (0, 1)
        for i, size in enumerate(sizes)
    ]
    path = results / "profile" / "network" / "contention.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Contention(ranks=2, points=tuple(points), provenance={"cores": 4}).to_json())


NUMBERS = {
    "fig4a": ("a_seconds", "b_seconds_per_byte", "r_squared", "line_error"),
    "fig4b": ("gamma", "capacity", "least_gain", "largest_gain"),
    "fig5": ("gamma", "mean_error", "worst_error"),
    "contention_points": ("one_seconds", "two_seconds", "gamma"),
}


@pytest.mark.parametrize("sweeps", [5, 6])
def test_fewer_than_six_sweeps_have_no_interval_in_any_table(tmp_path, sweeps):
    write_noisy_contention(tmp_path, sweeps)
    for name, numbers in NUMBERS.items():
        computed = papers.compute("ascwfbp", name, configured(), tmp_path)
        measured = computed.frame[computed.frame.rung == "measured"]
        assert measured.repeats.eq(sweeps).all()
        for column in numbers:
            low, middle, high = (measured[f"{column}{end}"].astype(float) for end in ("_low", "", "_high"))
            assert middle.notna().all()
            assert low.notna().all() == high.notna().all() == (sweeps == 6), column
            assert sweeps < 6 or (low < middle).all(), column
        cells = " ".join(map(str, computed.display[computed.display.rung == "measured"].to_numpy().ravel()))
        assert ("no interval" in cells) == (sweeps < 6)


def test_the_interval_of_a_mean_over_sweeps_is_students(tmp_path):
    write_noisy_contention(tmp_path, 6)
    row = (
        papers.compute("ascwfbp", "contention_points", configured(), tmp_path).frame.query("rung == 'measured'").iloc[0]
    )
    contention = Contention.load(tmp_path / "profile" / "network" / "contention.json")
    seconds = contention.times()[:, 0, 0]
    half = 2.570582 * seconds.std(ddof=1) / np.sqrt(6)  # t of 5 degrees of freedom
    assert (row.one_seconds_low, row.one_seconds_high) == pytest.approx((seconds.mean() - half, seconds.mean() + half))


def test_the_papers_constants_exceed_the_link_and_say_from_where(asc_tables):
    row = table(asc_tables, "fig4b").set_index("source").loc["the paper's constants"]
    m = row.exceeds_link_from_bytes
    assert 2 * m / (1.4e-3 + 1.5 * 1.7e-9 * m) == pytest.approx(9.43e9 / 16)
    assert row.largest_share > 1
    points = table(asc_tables, "contention_points")
    modelled = points[points.rung == "derived"]
    beyond = modelled.throughput_two > modelled.link_bytes_per_second
    assert (beyond == (modelled.bytes > m)).all()
    assert (2 * modelled.bytes / modelled.capacity_seconds <= modelled.link_bytes_per_second * (1 + 1e-9)).all()


def test_ranks_without_cores_for_two_lanes_say_so(tmp_path):
    write_contention(tmp_path, 1e-3, 2e-9, 1.0, cores=2)
    frame = papers.compute("ascwfbp", "fig4b", configured(), tmp_path).frame
    assert "2 ranks with two lanes each share 2 cores" in frame.note.iloc[-1]
