"""The benchmark of attached plans: what it takes for a result."""

import json

import pytest

from gradsync.benchmarks import attach_speed


@pytest.mark.deep
def test_its_rows_are_of_loops_that_trained_the_same(on_ranks):
    for rows, message in on_ranks("attach_benchmark", 2):
        assert [row["task"].split(": ")[0] for row in rows[:2]] == [
            "lenet5, 2 ranks, fixed_buckets",
            "lenet5, 2 ranks, mgwfbp",
        ]
        assert rows[2]["task"].endswith('plan="auto" that has chosen / attached directly')
        assert "is not the same after" in message
        for row in rows:
            assert row["ratio"] > 0
            assert row["ratio_low"] is row["ratio_high"] is None
            assert not row["met"]  # two pairs say nothing


@pytest.mark.parametrize("met", [True, False])
def test_one_row_that_misses_its_target_is_a_miss(tmp_path, monkeypatch, met):
    started = []

    def launch(arguments, ranks):
        started.append((arguments, ranks))
        rows = [{"task": "a", "met": True}, {"task": "b", "met": met}]
        (tmp_path / "attach.json").write_text(json.dumps(rows))

    monkeypatch.setattr(attach_speed, "launch", launch)
    answer = attach_speed.measure(tmp_path, "some.yaml")
    assert [row["task"] for row in answer["rows"]] == ["a", "b"]
    assert answer["met"] == met
    assert started == [(["benchmark", "attach", "--config", "some.yaml", "--results", str(tmp_path)], 2)]
