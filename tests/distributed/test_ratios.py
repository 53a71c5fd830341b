"""Ratios of LARS and LAMB between real ranks: those that are dealt are those that a rank computes alone, and timed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradsync.cli import main
from gradsync.costs.ratio_times import RatioTimes
from tiny_workloads import workload

SIZES = [4 * size for size in (1000, 10, 1, 333, 50_000)]


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.deep) for n in (2, 7))])
def test_each_rank_has_all_ratios_whether_they_are_dealt_or_not(on_ranks, ranks):
    for result in on_ranks("ratios_alone", ranks):
        for (name, queued), (serial, dealt) in result.items():
            assert len(serial) == len(SIZES), (name, queued)
            assert len({*serial}) > 1
            # in other places, since ranks have consecutive ones
            np.testing.assert_array_equal(np.sort(serial), np.sort(dealt))


def test_a_file_has_the_times_of_both(tmp_path, capsys):
    (tmp_path / "w.json").write_text(workload(SIZES, [1.0] * len(SIZES)).to_json())
    path = tmp_path / "ratios.json"
    counts = ("--ranks", "2", "--rounds", "6", "--iterations", "2")
    words = ["measure", "ratios", "--workload", str(tmp_path / "w.json"), *counts, "--output", str(path), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    times = RatioTimes.load(path)
    assert (times.ranks, times.tensors, times.elements) == (2, len(SIZES), sum(SIZES) // 4)
    assert [point.optimizer for point in times.points] == ["lars", "lamb"]
    assert {len(each) for point in times.points for each in (point.serial_seconds, point.pto_seconds)} == {6}
    for point, row in zip(times.points, told["points"], strict=True):
        assert row["serial_seconds"] == np.median(point.serial_seconds)
        assert row["pto_over_serial_low"] <= row["pto_over_serial"] <= row["pto_over_serial_high"]
    assert times.notes == tuple(told["notes"])
