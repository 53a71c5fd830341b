"""The benchmark of local updates over slow links: its verdicts on trainings that were made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradsync.benchmarks import command, slow_links_speed
from gradsync.files.results import Result

LEAST, REACHED = slow_links_speed.SECONDS, f"seconds_to_{slow_links_speed.ERROR:g}"


def write(folder: Path, name: str, seconds: list[float], reached: bool = True) -> None:
    Result(
        rung="emulated",
        scheme=name,
        model="LeNet-5",
        ranks=4,
        summary={LEAST: seconds[0], "iteration_seconds": 0.1, "accuracy": 0.96},
        samples={LEAST: seconds} | ({REACHED: seconds} if reached else {}),
    ).save(folder / name)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """measured(local, diloco, ...): the benchmark's answer if trainings take so many seconds, mean gradients 100."""

    def measure(local: float, diloco: float, reached: bool = True, dense: bool = True) -> tuple[dict[str, Any], list]:
        commands: list[tuple[str, ...]] = []

        def run(*words: str) -> None:
            commands.append(words)
            if words[0] == "elastic":
                output = Path(words[words.index("--output") + 1])
                write(output, "optimal", [100.0] * 6, dense)
                seconds, there = {"local_sgd": (local, reached), "diloco": (diloco, True)}[output.name]
                write(output, output.name, [seconds] * 6, there)

        monkeypatch.setattr(command, "run", run)
        monkeypatch.setattr(slow_links_speed.privileges, "enter", lambda: None)
        answer = slow_links_speed.measure(tmp_path)
        assert json.loads(json.dumps(answer)) == answer
        return answer, commands

    return measure


@pytest.mark.parametrize(("local", "met"), [(50.0, True), (51.0, False)])
def test_half_of_the_time_is_asked_for(measured, local, met):
    answer, commands = measured(local, 20.0)
    first, second = answer["rows"]
    assert (first["ratio"], first["met"], first["target_ratio"]) == (local / 100, met, 0.5)
    assert (first["ratio_low"], first["ratio_high"], first["pairs"]) == (local / 100, local / 100, 6)
    assert (second["ratio"], second["met"], answer["met"]) == (0.2, True, met)
    planned = [words[words.index("--schedule") + 1] for words in commands if words[0] == "plan"]
    assert planned == ["optimal", "local_sgd", "optimal", "diloco"]
    assert [words.count("--plan") for words in commands if words[0] == "elastic"] == [2, 2]
    optimizers = ["--optimizer" in words for words in commands if words[0] == "plan"]
    assert optimizers == [False, False, True, True]  # each is held against its own optimizer


def test_mean_gradients_that_do_not_get_there_count_with_their_time(measured):
    answer, _ = measured(50.0, 20.0, dense=False)
    assert answer["met"]
    assert [row["dense_reached"] for row in answer["rows"]] == [False, False]


def test_local_updates_have_to_get_there(measured):
    answer, _ = measured(10.0, 20.0, reached=False)
    assert [(row["reached"], row["met"]) for row in answer["rows"]] == [(False, False), (True, True)]


def test_a_command_that_fails_ends_the_benchmark(tmp_path):
    with pytest.raises(command.RunError, match=r"this failed: .* plan --workload nosuch"):
        command.run("plan", "--workload", "nosuch.json", "--schedule", "wfbp", "--allreduce", "a=1,b=1")
