"""The table of how much computation and messages slow one another down."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradsync import papers
from gradsync.configuration import settings
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.errors import InputError
from gradsync.papers import tables
from gradsync.papers.table import Table

ROOT = Path(__file__).parents[3]
JOB = {"model": "lenet5", "ranks": 2}
PROFILE = "profile/lenet5-2/interference.json"


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def compute(results: Path, *jobs: dict[str, object]) -> Table:
    config = settings.parse({"version": 1, "name": "tiny", "training": list(jobs)}, "test")
    return papers.compute("mgwfbp", "slowdown", config, results)


def test_a_row_a_launch_and_size(tmp_path):
    measured = InterferencePoint.of(40, (0.75, 0.9, 1.25), (1.5, 1.75, 2.0))
    by_hand = InterferencePoint(bytes=4000, computation=1.5, communication=1.25)
    path = tmp_path / PROFILE
    path.parent.mkdir(parents=True)
    path.write_text(Interference(ranks=2, points=(measured, by_hand), handover_seconds=5e-4).to_json())
    table = compute(tmp_path, JOB)
    assert table.frame.bytes.tolist() == [40, 4000]
    assert table.frame.computation_factor.tolist() == [1.0, 1.5]  # nothing gets faster by company
    assert table.frame.communication_factor_high.tolist()[0] == 2.0
    assert table.frame.communication_factor_high.isna().tolist() == [False, True]
    assert table.display["computation slowed"].tolist() == ["1.00 (0.75 .. 1.25)", "1.50 (no interval)"]
    assert table.display["communication slowed"].tolist() == ["1.75 (1.50 .. 2.00)", "1.25 (no interval)"]
    assert table.display["handover ms"].tolist() == ["0.50"] * 2
    for written in tables.write(table, tmp_path / "tables" / "mgwfbp", "slowdown"):
        assert Path(written).stat().st_size


def test_without_training_it_says_so(tmp_path):
    table = compute(tmp_path)
    assert table.frame.empty
    assert "no training" in table.caption


def test_factors_that_are_missing_are_named(tmp_path):
    with pytest.raises(InputError, match=PROFILE):
        compute(tmp_path, JOB)
