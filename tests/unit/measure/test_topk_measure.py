"""Times of selections: the file that tables read, and what is refused before anything is timed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gradsync import compressors
from gradsync.cli import main
from gradsync.costs.selection_times import SelectionPoint, SelectionTimes
from gradsync.errors import InputError, RunError
from gradsync.measure import topk
from gradsync.runtime import selection


def test_every_compressor_has_a_point_of_each_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "times.json"
    assert main(["measure", "topk", "--elements", "900", "400", "--density", "0.01", "--output", str(path)]) == 0
    times = SelectionTimes.load(path)
    assert [(p.elements, p.compressor) for p in times.points] == [
        (d, n) for d in (400, 900) for n in compressors.selecting()
    ]
    for point in times.points:
        assert point.selected == point.k == point.elements // 100
        assert len(point.seconds) == 10
        assert point.recall < 1 if point.compressor == "random_k" else point.recall == 1
    assert "over exact_topk" in capsys.readouterr().out


def test_json_has_medians_with_intervals_and_paired_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "measure",
        "topk",
        "--elements",
        "400",
        "--compressor",
        "exact_topk",
        "random_k",
        "--rounds",
        "6",
        "--json",
    ]
    assert main(words) == 0
    exact, random = json.loads(capsys.readouterr().out)["points"]
    assert exact["ratio"] == exact["ratio_low"] == 1
    assert random["seconds_low"] <= random["seconds"] <= random["seconds_high"]


def test_ratios_are_those_of_each_round() -> None:
    points = [
        SelectionPoint(compressor=name, elements=9, k=1, selected=1, recall=1, seconds=seconds)
        for name, seconds in (("exact_topk", (1.0, 2.0, 4.0)), ("mstopk", (0.5, 2.0, 1.0)))
    ]
    rows = topk.rows(SelectionTimes(device="cpu", density=0.1, points=tuple(points)))
    assert rows[1]["ratio"] == 0.5
    assert rows[1]["ratio_low"] is None  # three rounds say nothing


def test_a_compressor_that_fails_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(values: object, k: int, *, turn: int) -> None:
        raise RunError("no threshold")

    get = selection.get
    monkeypatch.setattr(selection, "get", lambda name: fails if name == "mstopk_as_printed" else get(name))
    settings = {"rounds": 1, "iterations": 1}
    times = topk.measure([50], 0.1, names=["mstopk", "mstopk_as_printed"], **settings)
    assert [point.compressor for point in times.points] == ["mstopk"]
    assert times.notes == ("no threshold",)
    with pytest.raises(RunError, match="no compressor selected anything"):
        topk.measure([50], 0.1, names=["mstopk_as_printed"], **settings)


def test_recall_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def worst(values: np.ndarray, k: int, *, turn: int) -> object:
        return abs(values).argsort()[:k].sort().values

    get = selection.get
    monkeypatch.setattr(selection, "get", lambda name: worst if name == "mstopk" else get(name))
    (point,) = topk.measure([50], 0.1, names=["mstopk"], rounds=1, iterations=1).points
    assert point.recall == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--density", "0"], "--density 0: the part that is selected is above 0 and at most 1"),
        (["--density", "1.5"], "--density 1.5: "),
        (["--elements", "0"], "--elements 0: 1 to "),
        (["--elements", "4", "1000000000"], "--elements 1000000000: selections need about 28 GB of memory, "),
        (["--compressor", "mtopk"], "compressor 'mtopk' does not exist; did you mean mstopk"),
        (["--compressor", "sign"], "--compressor: compressor 'sign' makes codes: take one of dgc_topk"),
        (["--rounds", "0"], "--rounds 0: 1 to 1000"),
        (["--iterations", "1001"], "--iterations 1001: 1 to 1000"),
        (["--output", "/proc/no/times.json"], "/proc/no"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topk.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 8e9}))
    monkeypatch.setattr(topk, "measure", lambda *_, **__: pytest.fail("measured"))
    assert main(["measure", "topk", "--elements", "100", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2 of selection times; this gradsync reads version 1"),
        ({"density": 0}, "density"),
        ({"points": []}, "points"),
    ],
)
def test_a_file_that_is_something_else_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    point = {"compressor": "mstopk", "elements": 9, "k": 1, "selected": 1, "recall": 1, "seconds": [1]}
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"version": 1, "device": "cpu", "density": 0.1, "points": [point], **change}))
    with pytest.raises(InputError, match=message):
        SelectionTimes.load(path)
