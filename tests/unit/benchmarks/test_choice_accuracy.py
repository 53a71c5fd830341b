"""The benchmark of first choices: its verdicts on emulated launches that were made up."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradsync.benchmarks import choice_accuracy
from gradsync.cli import main
from gradsync.errors import InputError


def run(name: str, predicted: float, *emulated: float) -> Any:
    return SimpleNamespace(name=name, predicted_seconds=predicted, samples=lambda: np.array(emulated or (predicted,)))


def of(*made: Any) -> dict[str, Any]:
    return choice_accuracy.of_launch("job", made)


def test_a_first_choice_that_is_the_fastest():
    row = of(run("a", 1.0, 1.1, 1.2), run("b", 2.0, 2.0, 2.2), run("c", 3.0, 2.9, 3.0))
    assert row["task"] == "job: a, predicted to be first, / a, the fastest"
    assert (row["ratio"], row["met"], row["rank_correlation"]) == (1.0, True, pytest.approx(1.0))
    assert (row["pairs_told_apart"], row["pairs_in_order"], row["schemes"]) == (3, 3, 3)


@pytest.mark.parametrize(("slower", "met"), [(1.02, True), (1.04, False)])
def test_another_one_is_faster(slower, met):
    row = of(run("a", 1.0, slower), run("b", 1.1, 1.0))
    assert (row["ratio"], row["met"]) == (pytest.approx(slower), met)
    assert row["rank_correlation"] == pytest.approx(-1)
    # a pair that is nearer than the bound has no order that could be wrong
    assert (row["pairs_told_apart"], row["pairs_in_order"]) == ((0, 0) if met else (1, 0))


def test_the_ratio_is_that_of_neighbouring_repeats():
    # the machine is twice as slow in the second half, for both
    row = of(run("a", 1.0, *[1.2] * 6, *[2.4] * 6), run("b", 1.1, *[1.0] * 6, *[2.0] * 6))
    assert (row["ratio_low"], row["ratio"], row["ratio_high"]) == pytest.approx((1.2,) * 3)


def test_plans_that_are_predicted_alike_have_no_order():
    row = of(run("a", 1.0, 1.0), run("b", 1.0, 2.0))
    assert row["rank_correlation"] is None
    assert (row["ratio"], row["pairs_told_apart"], row["pairs_in_order"]) == (1.0, 1, 0)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """measured({job: (runs, reason)}): the benchmark's answer."""

    def measure(launches: dict[str, tuple[list[Any], str]]) -> dict[str, Any]:
        monkeypatch.setattr(choice_accuracy, "runs", lambda launch, results: launches[launch.job])
        settings: Any = SimpleNamespace(emulated=[SimpleNamespace(job=job) for job in launches])
        for job, (_, reason) in launches.items():
            if reason != choice_accuracy.NOT_RUN:
                ended = tmp_path / "runs" / "emulated" / job / "status.json"
                ended.parent.mkdir(parents=True)
                ended.touch()
        return choice_accuracy.measure(settings, tmp_path)

    return measure


GOOD = ([run("a", 1.0), run("b", 2.0), run("stock", float("nan"), 0.5)], "")  # stock DDP has no prediction
BAD = ([run("a", 1.0, 1.5), run("b", 2.0, 1.0)], "")


@pytest.mark.parametrize(("settings", "met"), [(12, True), (11, False)])
def test_settings_are_enough(measured, settings, met):
    others = {"nothing": ([], "no root"), "later": ([], choice_accuracy.NOT_RUN)}
    answer = measured({str(i): GOOD for i in range(settings)} | others)
    assert json.loads(json.dumps(answer)) == answer
    *_, whole = answer["rows"]
    assert (answer["met"], whole["met"], len(answer["rows"])) == (met, met, settings + 1)
    assert (whole["pairs_in_order"], whole["pairs_told_apart"]) == (settings, settings)
    assert answer["notes"] == ["nothing: not emulated: no root", "later: not emulated: it has not ended yet"]


def test_one_bad_choice_misses(measured):
    answer = measured({**{str(i): GOOD for i in range(12)}, "bad": BAD})
    *_, bad, whole = answer["rows"]
    assert (answer["met"], bad["met"], whole["met"]) == (False, False, True)
    assert (whole["worst"], whole["ratio"]) == pytest.approx((1.5, (12 + 1.5) / 13))


def test_nothing_to_hold_against_one_another(measured, tmp_path, capsys):
    with pytest.raises(InputError, match=r"no emulated launch .* two schemes with predictions: run snakemake"):
        measured({"one": ([run("a", 1.0)], "")})
    assert main(["benchmark", "advice", "--results", str(tmp_path)]) == 2  # the quick configuration emulates nothing
    assert "no emulated launch" in capsys.readouterr().err
