"""The benchmark of centres in shared memory against masters that serve in turn: its verdicts on made-up trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradsync.benchmarks import command, masters_speed
from gradsync.files.results import Result

SERVED = 0.5  # seconds of an iteration of Async EASGD


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """measured({workers: seconds of an iteration of Hogwild EASGD}): the benchmark's answer."""

    def measure(hogwild: dict[int, float]) -> tuple[dict[str, Any], list[str]]:
        trained = []

        def run(*words: str) -> None:
            if words[0] != "elastic":
                return
            method, ranks = Path(words[words.index("--plan") + 1]).stem.split("-")
            workers = int(ranks) - masters_speed.METHODS[method]
            seconds = SERVED if method == "async_easgd" else hogwild[workers]
            trained.append(f"{workers} {method}")
            folder = Path(words[words.index("--output") + 1]) / method
            samples = {"iteration_seconds": [9.0, seconds]}  # the first segment does not count
            Result(rung="measured", scheme=method, model="LeNet-5", ranks=int(ranks), samples=samples).save(folder)

        monkeypatch.setattr(command, "run", run)
        answer = masters_speed.measure(tmp_path)
        assert json.loads(json.dumps(answer)) == answer
        return answer, trained

    return measure


def test_as_many_are_asked_for_and_more_from_four_workers_on(measured):
    answer, trained = measured({1: SERVED, 2: SERVED, 4: 0.8 * SERVED})
    assert [row["met"] for row in answer["rows"]] == [True, True, True]
    assert [row["ratio"] for row in answer["rows"]] == pytest.approx([1, 1, 1.25])
    assert [row["updates_per_second"] for row in answer["rows"]] == pytest.approx([2, 4, 10])
    assert trained[:4] == ["1 hogwild_easgd", "1 async_easgd", "1 async_easgd", "1 hogwild_easgd"]


@pytest.mark.parametrize(("workers", "seconds"), [(2, 1.01 * SERVED), (4, SERVED)])
def test_fewer_or_as_many_from_four_miss(measured, workers, seconds):
    answer, _ = measured({1: SERVED, 2: SERVED, 4: 0.8 * SERVED} | {workers: seconds})
    assert not answer["met"]
    assert [row["met"] for row in answer["rows"]] == [count != workers for count in (1, 2, 4)]
