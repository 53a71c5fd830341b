"""The table of the real runs: plans, stock DDP and references, each with its prediction."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradsync import papers
from gradsync.configuration import settings
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers import figures, tables
from gradsync.papers.ranking import ALIKE, SLOWER, UNKNOWN, over_fastest, ranked
from gradsync.papers.repeats import cells
from gradsync.papers.table import Table, read
from gradsync.statistics import quiet

ROOT = Path(__file__).parents[3]
LENET, RESNET = {"model": "lenet5", "ranks": 2}, {"model": "resnet50", "ranks": 4}
ALONE, COMPUTING = 0.4, 0.2  # seconds per iteration of one rank alone, and without communication
# contender -> seconds per iteration, seconds of computation, predicted seconds (with and without interference)
RUNS: dict[str, tuple[float, float | None, tuple[float, float] | None]] = {
    "wfbp": (0.5, 0.3, (0.4, 0.3)),
    "mgwfbp": (0.25, 0.25, (0.3, 0.2)),
    "ddp": (0.3, None, None),
    "no_communication": (COMPUTING, None, None),
    "one_rank": (ALONE, None, None),
}


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def compute(results: Path, *jobs: dict[str, Any]) -> Table:
    return papers.compute("mgwfbp", "training", configured(*jobs), results)


def configured(*jobs: dict[str, Any]) -> settings.Settings:
    return settings.parse({"version": 1, "name": "tiny", "training": list(jobs)}, "test")


BLOCKS = (1.0, 0.75, 1.0, 1.25, 1.0, 1.0)


def spread(key: str, value: float) -> dict[str, float]:
    return {key: value, f"{key}_low": 0.75 * value, f"{key}_high": 1.25 * value}


def write_run(results: Path, job: dict[str, Any], name: str, reference: str = "wfbp") -> None:
    seconds, computation, predicted = RUNS[name]
    summary = {"iteration_seconds": seconds, "pairs": 20.0, "seeds": 2.0}
    samples = {"iteration_seconds": [by * seconds for by in BLOCKS]}
    summary |= spread(f"ratio_to_{reference}", seconds / RUNS[reference][0])
    conformance: dict[str, Any] = {"trains": "each rank for itself: nothing is sent"}
    if name not in ("no_communication", "one_rank"):
        samples["speedup"] = [job["ranks"] * ALONE / each for each in samples["iteration_seconds"]]
        summary["accuracy"] = 0.5
        summary |= {"computation_seconds": COMPUTING, "messages": 3.0}
        conformance = {"difference_to_first": 1e-7, "parameters_sha256": f"of {name}"}
    if computation is not None:
        summary |= {"busy_computation_seconds": computation, "exposed_communication_seconds": 0.05}
        conformance["oracle_difference"] = 1e-16
    folder = f"{job['model']}-{job['ranks']}"
    Result(
        rung="measured",
        scheme=name,
        model=job["model"],
        ranks=job["ranks"],
        summary=summary,
        samples=samples,
        conformance=conformance,
        notes=["4 ranks share 2 cores"] if job["ranks"] > 2 else [],
    ).save(results / "runs" / "train" / folder / name)
    if predicted is not None:
        path = results / "plans" / folder / f"{name}.prediction.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "iteration_seconds": predicted[0],
            "iteration_seconds_without_interference": predicted[1],
            "exposed_communication_seconds": 0.01,
            "messages": [["a"], ["b"]],
            "warnings": ["extrapolated"],
        }
        path.write_text(json.dumps(content))


def write_job(
    results: Path, job: dict[str, Any], names: tuple[str, ...] = tuple(RUNS), reference: str = "wfbp"
) -> None:
    for name in names:
        write_run(results, job, name, reference)
    folder = results / "runs" / "train" / f"{job['model']}-{job['ranks']}"
    (folder / "schemes.json").write_text(json.dumps(names))


def measured(table: Table, model: str = "lenet5") -> Any:
    frame = table.frame
    return frame[(frame.rung == "measured") & (frame.model == model)].set_index("scheme")


def add_note(file: Path, key: str, note: str) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, key: [*content[key], note]}))


@pytest.mark.parametrize("under_load", ["result", "prediction"])
def test_times_taken_under_load_are_told_and_no_prediction_is_held_against_them(tmp_path, under_load):
    write_job(tmp_path, LENET)
    undisturbed = measured(compute(tmp_path, LENET))
    assert not undisturbed.disturbed.any()
    (note,) = quiet.load_warnings({quiet.KEY: 0.3}, "launch")
    if under_load == "result":
        add_note(tmp_path / "runs/train/lenet5-2/mgwfbp/result.json", "notes", note)
    else:
        add_note(tmp_path / "plans/lenet5-2/mgwfbp.prediction.json", "warnings", note)
    table = compute(tmp_path, LENET)
    disturbed = measured(table)
    assert disturbed.index[disturbed.disturbed].tolist() == ["mgwfbp"]
    assert math.isnan(disturbed.predicted_over_measured["mgwfbp"])
    assert disturbed.predicted_over_measured["wfbp"] == undisturbed.predicted_over_measured["wfbp"]
    assert "Of lenet5 on 2 ranks, times here or those that predictions come from were timed while" in table.caption


def test_every_contender_has_a_row_and_every_prediction_another(tmp_path):
    write_job(tmp_path, LENET)
    table = compute(tmp_path, LENET)
    rows = measured(table)
    assert list(rows.index) == list(RUNS)
    simulated = table.frame[table.frame.rung == "simulated"].set_index("scheme")
    assert list(simulated.index) == ["wfbp", "mgwfbp"]
    assert list(simulated.messages) == [2, 2]
    assert list(simulated.note) == ["extrapolated"] * 2
    assert simulated.iteration_seconds["wfbp"] == 0.4
    assert rows.iteration_seconds["ddp"] == 0.3
    assert rows.ratio["mgwfbp"] == pytest.approx(0.5)
    assert rows.speedup["mgwfbp"] == pytest.approx(3.2)
    assert rows.predicted_over_measured["mgwfbp"] == pytest.approx(1.2)
    assert rows.predicted_over_measured_without_interference["mgwfbp"] == pytest.approx(0.8)
    # computation while messages travel over computation without any
    assert rows.slowdown["wfbp"] == pytest.approx(1.5)
    assert rows.slowdown["mgwfbp"] == pytest.approx(1.25)
    assert rows.oracle_difference["wfbp"] == 1e-16
    assert rows.parameters_sha256["ddp"] == "of ddp"


def test_what_a_contender_does_not_have_stays_empty(tmp_path):
    write_job(tmp_path, LENET)
    table = compute(tmp_path, LENET)
    rows = measured(table)
    for name in ("ddp", "no_communication", "one_rank"):
        for column in ("predicted_over_measured", "slowdown", "exposed_communication_seconds", "oracle_difference"):
            assert rows[column].isna()[name], (name, column)
    for name in ("no_communication", "one_rank"):
        assert rows.speedup.isna()[name]
    shown, more = table.display.set_index("contender"), table.more[0][1].set_index("contender")
    assert more.loc["PyTorch DDP", "predicted/measured"] == shown.loc["one rank alone", "speed-up"] == "-"
    assert shown.loc["MG-WFBP", "iteration ms"] == "250.0 (187.5 .. 312.5)"
    assert more.loc["MG-WFBP", "computation slowed"] == "1.25"
    assert not any("nan" in str(cell) for frame in (shown, more) for cell in frame.to_numpy().ravel())


def test_contenders_are_ranked_and_what_differs_from_the_fastest_is_told(tmp_path):
    write_job(tmp_path, LENET)
    shown = compute(tmp_path, LENET).display
    order = ["MG-WFBP", "PyTorch DDP", "WFBP", "no communication", "one rank alone"]
    assert shown.contender.tolist() == order
    assert shown["which is"].tolist() == ["fastest", "slower", "slower", "-", "-"]
    assert shown["over the fastest"].tolist() == ["1", "1.200 (1.200 .. 1.200)", "2.000 (2.000 .. 2.000)", "-", "-"]


@pytest.mark.parametrize(
    ("ratios", "word"),
    [((1.1, 1.2, 1.1, 1.3, 1.1, 1.2), SLOWER), ((0.9, 1.2, 1.1, 1.3, 1.1, 1.2), ALIKE), ((1.1, 1.2, 1.1), UNKNOWN)],
)
def test_blocks_are_compared_in_pairs(ratios, word):
    rows = [("mgwfbp", [1.0] * len(ratios)), ("wfbp", ratios)]
    launch = pd.DataFrame(
        [
            {"scheme": name, "launch": "lenet5-2", **cells("iteration_seconds", samples)}
            for name, samples in reversed(rows)
        ]
    )
    assert ranked(launch).scheme.tolist() == ["mgwfbp", "wfbp"]
    assert over_fastest(launch.iloc[0], launch)[1] == word


def test_several_launches_stand_one_after_the_other_each_with_its_error(tmp_path):
    write_job(tmp_path, LENET)
    write_job(tmp_path, RESNET, ("wfbp", "ddp"))
    table = compute(tmp_path, RESNET, LENET)
    assert list(table.display["model"]) == ["resnet50"] * 2 + ["lenet5"] * len(RUNS)
    assert list(measured(table, "resnet50").nodes) == [4, 4]
    assert measured(table, "resnet50").note["ddp"] == "4 ranks share 2 cores"
    assert measured(table).note["ddp"] == ""
    # mean of |0.4 / 0.5 - 1| and |0.3 / 0.25 - 1|; without the slow-down of 0.4 and 0.2
    assert "lenet5 on 2 ranks 20% (30% without the slow-down)" in table.caption
    assert "resnet50 on 4 ranks 20% (40% without the slow-down)" in table.caption


def test_without_predictions_no_error_is_told(tmp_path):
    write_job(tmp_path, RESNET, ("wfbp", "mgwfbp"))
    for path in (tmp_path / "plans").rglob("*.json"):
        path.unlink()
    table = compute(tmp_path, RESNET)
    assert set(table.frame.rung) == {"measured"}
    assert "Mean error" not in table.caption
    assert set(table.more[0][1]["predicted/measured"]) == {"-"}
    write_job(tmp_path, LENET)  # of two launches, only the one with predictions is in the caption
    both = compute(tmp_path, RESNET, LENET)
    assert "lenet5 on 2 ranks 20%" in both.caption
    assert "resnet50" not in both.caption


def test_ratios_are_to_the_reference_of_the_launch(tmp_path):
    write_job(tmp_path, LENET, ("mgwfbp", "ddp"), reference="mgwfbp")
    table = compute(tmp_path, LENET)
    assert measured(table).reference.tolist() == ["mgwfbp", "mgwfbp"]
    assert measured(table).ratio["ddp"] == pytest.approx(0.3 / 0.25)
    assert measured(table).iteration_seconds.notna().all()
    assert table.display["over mgwfbp"].tolist() == ["1.000 (0.750 .. 1.250)", "1.200 (0.900 .. 1.500)"]


def test_table_and_figure_are_written_and_read_again(tmp_path):
    write_job(tmp_path, LENET)
    write_job(tmp_path, RESNET, ("wfbp", "ddp"))
    table = compute(tmp_path, LENET, RESNET)
    tables.write(table, tmp_path / "tables" / "mgwfbp", "training")
    again = read(tmp_path / "tables" / "mgwfbp" / "training.csv")
    assert list(again.scheme) == list(table.frame.scheme)
    assert again.iteration_seconds.tolist() == table.frame.iteration_seconds.tolist()
    for path in figures.write("mgwfbp", "training", configured(LENET, RESNET), tmp_path):
        assert Path(path).stat().st_size


def test_without_training_table_and_figure_say_so(tmp_path):
    table = compute(tmp_path)
    assert table.frame.empty
    written = tables.write(table, tmp_path / "tables" / "mgwfbp", "training")
    assert all("no training" in Path(path).read_text() for path in written if not path.endswith("csv"))
    figure_files = figures.write("mgwfbp", "training", configured(), tmp_path)
    assert "No training for mgwfbp in this configuration." in Path(figure_files[0]).read_text()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("runs/train/lenet5-2/mgwfbp/result.json", "{", "not a result"),
        ("runs/train/lenet5-2/mgwfbp/result.json", None, "can't be read"),
        ("runs/train/lenet5-2/schemes.json", "[", "can't be read"),
        ("runs/train/lenet5-2/schemes.json", None, "can't be read"),
        ("plans/lenet5-2/mgwfbp.prediction.json", "{", "can't be read"),
        ("plans/lenet5-2/mgwfbp.prediction.json", "[1]", "not a prediction: no iteration_seconds, "),
        (
            "plans/lenet5-2/mgwfbp.prediction.json",
            '{"iteration_seconds": 1}',
            "not a prediction: no iteration_seconds_",
        ),
    ],
)
def test_a_broken_input_is_named(tmp_path, file, content, message):
    write_job(tmp_path, LENET)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=message) as refused:
        compute(tmp_path, LENET)
    assert str(tmp_path / file) in str(refused.value)
    assert "\n" not in str(refused.value)
