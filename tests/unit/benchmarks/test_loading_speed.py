"""The benchmark of the data cache: it times what it says, and misses a target that it does not reach."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync.benchmarks import loading_speed
from gradsync.runtime.data import made_photographs
from gradsync.runtime.data.cache import DataCache


def test_the_benchmark_compares_each_mode_with_the_plain_loader(tmp_path, monkeypatch):
    caches = []

    def kept(*arguments):
        caches.append(DataCache(*arguments))
        return caches[-1]

    monkeypatch.setattr(loading_speed, "DataCache", kept)
    made_photographs.make(tmp_path / "files", loading_speed.PHOTOGRAPHS)
    files = list((tmp_path / "files" / "class").iterdir())
    assert 0.05e6 < np.mean([file.stat().st_size for file in files]) < 0.15e6
    rows = loading_speed.of_side(tmp_path, 96, pairs=2)
    assert [row["task"].split()[5] for row in rows] == ["local_files", "exact", "reduced"]
    assert all(row["ratio"] > 0 and row["io_seconds"] > 0 for row in rows)
    assert not rows[2]["met"]  # of two pairs nothing is met
    # what has been decoded is not decoded again, and copies of files are
    assert [cache.made["decoded"] / loading_speed.PHOTOGRAPHS for cache in caches] == [2, 1, 1]


@pytest.mark.parametrize(("factor", "met"), [(5.5, True), (4.5, False)])
def test_the_target_is_a_ratio_of_medians(factor, met):
    row = loading_speed._row(96, "reduced", np.full(24, factor), np.ones(24))
    assert row["met"] is met
    assert row["ratio"] == pytest.approx(factor)
    assert loading_speed._row(224, "reduced", np.full(24, 0.1), np.ones(24))["met"]
