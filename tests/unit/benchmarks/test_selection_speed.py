"""The benchmark of selections: what it takes for a result."""

from __future__ import annotations

import pytest
import torch

from gradsync.benchmarks import selection_speed
from gradsync.errors import RunError
from gradsync.runtime.selection import mstopk


def test_its_rows_are_of_a_right_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = selection_speed.measured(400_000, 400)
    assert [row["task"].split()[0].rstrip(":") for row in rows] == ["mstopk"] * 3
    assert all(row["ratio"] > 0 for row in rows)
    monkeypatch.setattr(mstopk, "select", lambda values, k, *, turn: torch.arange(k))
    with pytest.raises(RunError, match="did not select the 400 largest"):
        selection_speed.measured(400_000, 400)


def test_its_rows_of_a_gpu_tell_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a processor")
    first, second = selection_speed.measured_on_gpu(400_000, 400, "cpu")
    assert first["target_ratio"] == 0.2
    assert second["met"]
    assert first["bytes_per_second"] == pytest.approx(1.6e6 / first["seconds"])


def test_a_ratio_above_its_target_is_a_miss() -> None:
    assert selection_speed.compared([1.0] * 7, [4.0] * 7, "torch.topk", 0.25)["met"]
    assert not selection_speed.compared([1.1] * 7, [4.0] * 7, "torch.topk", 0.25)["met"]


def test_memory_that_a_task_holds_at_once_counts_and_what_it_freed_does_not() -> None:
    values = torch.zeros(1000)

    def twice() -> torch.Tensor:
        one = values + 1
        both = one + values
        del one
        return both + 1

    assert 8000 <= selection_speed.peak_bytes(twice) < 8100  # and the numbers that are added
