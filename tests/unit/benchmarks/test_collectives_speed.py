"""The benchmark of executed collectives: what it takes for a result."""

import json

from gradsync.benchmarks import collectives_speed


def test_its_rows_are_of_messages_whose_sums_were_right(on_ranks):
    for rows, message in on_ranks("ring_benchmark", 2):
        assert [row["bytes"] for row in rows] == [64, 64, 40_000, 40_000]
        assert message.endswith("an all-reduce of 64 B gave a wrong sum")
        for row in rows:
            assert row["ratio"] > 0
            assert row["ratio_low"] is row["ratio_high"] is None
            assert not row["met"]  # three pairs say nothing


def test_one_row_that_misses_its_target_is_a_miss(tmp_path, monkeypatch):
    started = []

    def launch(arguments, ranks):
        started.append((arguments, ranks))
        (tmp_path / "ring.json").write_text(json.dumps([{"task": "a", "met": True}]))

    monkeypatch.setattr(collectives_speed, "launch", launch)
    for met in (True, False):
        monkeypatch.setattr(collectives_speed.collective_scaling, "rows", lambda met=met: [{"task": "b", "met": met}])
        answer = collectives_speed.measure(tmp_path, "some.yaml")
        assert [row["task"] for row in answer["rows"]] == ["a", "b"]
        assert answer["met"] == met
    assert started[0] == (
        ["benchmark", "collectives", "--config", "some.yaml", "--results", str(tmp_path)],
        4,
    )
