"""Import into MLflow: complete, idempotent, repaired after an interruption, and refused as a whole if it must be."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gradsync.configuration.settings import MLflow
from gradsync.errors import InputError, RunError
from gradsync.files import disk
from gradsync.files.results import Result, write_whole
from gradsync.record import tracking
from gradsync.site import runs as site_runs
from small_disk import fill, mounted

COLUMNS = "seed,step,epoch,block,loss,iteration_seconds,accuracy\n"
TIMED = "seed,step,seconds,loss,iteration_seconds,accuracy\n"
METRICS = COLUMNS + "7,0,0,0,2.5,,\n7,1,0,0,1.5,0.25,\n7,2,1,0,0.5,0.125,0.75\n"


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take longer to make than everything else in these tests."""
    folder = tmp_path_factory.mktemp("database")
    (folder / "quick" / "runs").mkdir(parents=True)
    tracking.import_results(MLflow(experiment="other"), folder / "quick")
    return folder / "mlflow.db"


@pytest.fixture
def results(tmp_path: Path, empty_database: Path) -> Path:
    """A results folder with runs of two schemes and the figure of their table."""
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    folder = tmp_path / "quick"
    for scheme in ("wfbp", "mgwfbp"):
        write_run(folder, scheme)
    figures = folder / "figures" / "mgwfbp"
    figures.mkdir(parents=True)
    (figures / "training.svg").write_text("<svg/>")
    (figures / "gap.svg").write_text("<svg/>")
    return folder


def write_run(results: Path, scheme: str, **changes: object) -> Path:
    content: dict[str, Any] = {
        "rung": "measured",
        "paper": "mgwfbp",
        "table": "training",
        "scheme": scheme,
        "model": "lenet5",
        "ranks": 2,
        "settings": {"batch": 32, "all_reduce": "T(m) = a + b m"},
        "provenance": {"cores": 2},
        "summary": {"iteration_seconds": 0.25, "accuracy": 0.75},
        "conformance": {"oracle_difference": 1e-16},
        "notes": ["2 ranks share 1 core"],
    }
    folder = results / "runs" / "train" / "lenet5-2" / scheme
    Result.model_validate({**content, **changes}).save(folder)
    for name, text in (("metrics.csv", METRICS), ("plan.json", "{}"), ("trace.json", "{}"), ("extra.txt", "")):
        (folder / name).write_text(text)
    return folder


def client(results: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{results.parent / 'mlflow.db'}")


def runs(results: Path) -> dict[str, Any]:
    """Scheme -> its run; fails if a scheme has several."""
    every_run = all_runs(results)
    by_scheme = {run.data.tags["scheme"]: run for run in every_run}
    assert len(by_scheme) == len(every_run)
    return by_scheme


def by_step(results: Path, run: Any) -> dict[str, list[tuple[int, float]]]:
    """Every metric over steps of a run: (step, value)."""
    server = client(results)
    return {
        key: [(point.step, point.value) for point in server.get_metric_history(run.info.run_id, key)]
        for key in run.data.metrics
        if key.startswith("step.")
    }


def all_runs(results: Path) -> list[Any]:
    server = client(results)
    experiment = server.get_experiment_by_name("gradsync")
    return list(server.search_runs([experiment.experiment_id])) if experiment else []


def test_everything_of_a_run_is_imported(results):
    answer = tracking.import_results(MLflow(), results)
    assert answer == {
        "tracking_uri": f"sqlite:///{results.parent / 'mlflow.db'}",
        "experiment_id": client(results).get_experiment_by_name("gradsync").experiment_id,
        "imported": 2,
        "known": 0,
        "runs": {run.data.tags[tracking.KEY]: run.info.run_id for run in runs(results).values()},
    }
    by_scheme = runs(results)
    assert set(by_scheme) == {"wfbp", "mgwfbp"}
    run = by_scheme["wfbp"]
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "lenet5 wfbp 2 measured"
    assert run.data.params == {"batch": "32", "all_reduce": "T(m) = a + b m"}
    tags = {"paper": "mgwfbp", "table": "training", "rung": "measured", "scheme": "wfbp", "model": "lenet5"}
    assert tags.items() <= run.data.tags.items()
    assert run.data.tags["ranks"] == "2"
    assert run.data.tags["provenance.cores"] == "2"
    assert run.data.tags["conformance.oracle_difference"] == "1e-16"
    assert run.data.tags["mlflow.note.content"] == "2 ranks share 1 core"
    folder = results / "runs" / "train" / "lenet5-2" / "wfbp"
    assert run.data.tags[tracking.KEY] == Result.load(folder / "result.json").key()
    assert run.data.metrics["iteration_seconds"] == 0.25
    assert run.data.metrics["accuracy"] == 0.75
    assert by_step(results, run) == {
        "step.loss": [(0, 2.5), (1, 1.5), (2, 0.5)],
        "step.iteration_seconds": [(1, 0.25), (2, 0.125)],
        "step.accuracy": [(2, 0.75)],
    }


def test_each_seed_has_its_own_curves(results):
    folder = write_run(results, "wfbp", settings={"seeds": [3, 5], "bucket_bytes": [1048576, 26214400]})
    rows = "3,0,0,0,2.5,,\n3,1,0,0,1.5,0.25,0.5\n5,0,0,1,3.5,,\n5,1,0,1,0.5,0.125,0.75\n"
    (folder / "metrics.csv").write_text(COLUMNS + rows)
    tracking.import_results(MLflow(), results)
    run = runs(results)["wfbp"]
    assert by_step(results, run) == {
        "step.loss": [(0, 2.5), (1, 1.5)],
        "step.iteration_seconds": [(1, 0.25)],
        "step.accuracy": [(1, 0.5)],
        "step.loss.seed5": [(0, 3.5), (1, 0.5)],
        "step.iteration_seconds.seed5": [(1, 0.125)],
        "step.accuracy.seed5": [(1, 0.75)],
    }
    assert run.data.params == {"seeds": "[3, 5]", "bucket_bytes": "[1048576, 26214400]"}
    assert tracking.import_results(MLflow(), results)["imported"] == 0


def test_errors_lie_at_their_seconds_of_training_and_runs_are_found_by_seed(results):
    folder = write_run(results, "async_easgd", settings={"seeds": [3, 5]}, paper="easgd_knl")
    rows = "3,8,0.5,0.06,2.5,0.25,0.75\n3,16,1.25,0.06,1.5,0.5,0.5\n5,8,0.75,0.06,2.0,,\n"
    (folder / "metrics.csv").write_text("seed,step,seconds,iteration_seconds,loss,accuracy,error\n" + rows)
    tracking.import_results(MLflow(), results)
    server = client(results)
    experiment = server.get_experiment_by_name("gradsync").experiment_id
    asked = (
        "tags.`seed.5` = 'yes' and tags.paper = 'easgd_knl' and tags.scheme = 'async_easgd' and tags.model = 'lenet5'"
    )
    (run,) = server.search_runs([experiment], asked)
    curve = server.get_metric_history(run.info.run_id, "step.error")
    assert [(point.step, point.timestamp, point.value) for point in curve] == [(8, 500, 0.75), (16, 1250, 0.5)]
    assert "step.error.seed5" not in run.data.metrics  # that seed was not tested


def test_conformance_is_told_in_numbers_and_in_words(results):
    write_run(results, "wfbp", conformance={"oracle_difference": 2.5e-10, "oracle_steps": 3, "oracle_dtype": "float64"})
    write_run(results, "mgwfbp", conformance={"trains": "each rank for itself: nothing is sent"})
    tracking.import_results(MLflow(), results)
    tags = {
        name: {key: value for key, value in run.data.tags.items() if key.startswith("conformance.")}
        for name, run in runs(results).items()
    }
    assert tags == {
        "wfbp": {
            "conformance.oracle_difference": "2.5e-10",
            "conformance.oracle_steps": "3",
            "conformance.oracle_dtype": "float64",
        },
        "mgwfbp": {"conformance.trains": "each rank for itself: nothing is sent"},
    }


def test_artefacts_are_those_of_the_run_and_its_figure(results):
    tracking.import_results(MLflow(), results)
    server, run = client(results), runs(results)["wfbp"]
    names = {file.path for file in server.list_artifacts(run.info.run_id)}
    assert names == {"result.json", "metrics.csv", "plan.json", "trace.json", "figures"}
    assert [file.path for file in server.list_artifacts(run.info.run_id, "figures")] == ["figures/training.svg"]
    kept = Path(run.info.artifact_uri.removeprefix("file://"))
    assert kept.is_relative_to(results.parent / "mlflow-artifacts")
    assert (kept / "metrics.csv").read_text() == METRICS


def test_artefacts_of_a_named_database_stay_beside_the_results(results, monkeypatch):
    monkeypatch.chdir(results)
    tracking.import_results(MLflow(tracking_uri=f"sqlite:///{results.parent / 'mlflow.db'}"), results)
    kept = Path(runs(results)["wfbp"].info.artifact_uri.removeprefix("file://"))
    assert kept.is_relative_to(results.parent / "mlflow-artifacts")
    assert not (results / "mlruns").exists()


def test_more_steps_than_one_call_takes_are_all_imported(results):
    steps = 2 * tracking.BATCH + 7
    folder = results / "runs" / "train" / "lenet5-2" / "wfbp"
    (folder / "metrics.csv").write_text(COLUMNS + "".join(f"0,{i},0,0,{i / 2},,\n" for i in range(steps)))
    tracking.import_results(MLflow(), results)
    assert by_step(results, runs(results)["wfbp"]) == {"step.loss": [(i, i / 2) for i in range(steps)]}


def test_values_that_are_no_numbers_are_left_out(results):
    folder = write_run(results, "wfbp", summary={"seconds": 0.25, "ratio": math.inf, "loss": math.nan})
    (folder / "metrics.csv").write_text(COLUMNS + "0,0,0,0,1.5,,\n0,1,0,0,nan,,\n0,2,0,0,inf,,\n")
    assert tracking.import_results(MLflow(), results)["imported"] == 2
    assert tracking.import_results(MLflow(), results)["imported"] == 0
    assert runs(results)["wfbp"].data.metrics == {"seconds": 0.25, "step.loss": 1.5}


def test_importing_twice_imports_nothing_new(results):
    tracking.import_results(MLflow(), results)
    before = {run.info.run_id for run in all_runs(results)}
    again = tracking.import_results(MLflow(), results)
    assert (again["imported"], again["known"]) == (0, 2)
    assert {run.info.run_id for run in all_runs(results)} == before


def test_a_changed_result_is_a_new_run_beside_the_old_one(results):
    tracking.import_results(MLflow(), results)
    write_run(results, "wfbp", summary={"iteration_seconds": 0.5})
    again = tracking.import_results(MLflow(), results)
    assert (again["imported"], again["known"]) == (1, 1)
    seconds = [run.data.metrics["iteration_seconds"] for run in all_runs(results) if run.data.tags["scheme"] == "wfbp"]
    assert sorted(seconds) == [0.25, 0.5]


def test_the_same_result_in_two_places_is_one_run(results):
    shutil.copytree(results / "runs" / "train" / "lenet5-2", results / "runs" / "copy")
    assert tracking.import_results(MLflow(), results)["imported"] == 2
    assert len(all_runs(results)) == 2


def test_a_result_without_metrics_or_figure_is_imported_too(results):
    folder = write_run(results, "single", paper="", table="", notes=[])
    for name in ("metrics.csv", "plan.json", "trace.json"):
        (folder / name).unlink()
    assert tracking.import_results(MLflow(), results)["imported"] == 3
    run = runs(results)["single"]
    assert [file.path for file in client(results).list_artifacts(run.info.run_id)] == ["result.json"]


def test_nothing_to_import_is_no_error(results):
    shutil.rmtree(results / "runs")
    answer = tracking.import_results(MLflow(), results)
    assert (answer["imported"], answer["known"]) == (0, 0)


def test_links_of_the_report_lead_to_the_runs_that_they_stand_for(results):
    """By the ids in the addresses, asked of the store itself."""
    write_whole(results / "tracked.json", json.dumps(tracking.import_results(MLflow(), results)))
    for shown in site_runs.runs(results):
        address = r"http://127\.0\.0\.1:5000/#/experiments/(\w+)/runs/(\w+)"
        experiment, run = re.fullmatch(address, shown.mlflow).groups()
        stored = client(results).get_run(run)
        assert stored.info.experiment_id == experiment
        assert stored.data.tags[tracking.KEY] == shown.result.key()
        assert stored.data.tags["scheme"] == shown.result.scheme


def test_experiments_are_kept_apart(results):
    tracking.import_results(MLflow(), results)
    assert tracking.import_results(MLflow(experiment="second"), results)["imported"] == 2
    assert len(all_runs(results)) == 2


@pytest.mark.parametrize("interrupted", ["create_run", "log_batch", "log_artifact", "set_terminated"])
def test_an_interrupted_import_is_repaired_by_the_next(results, monkeypatch, interrupted):
    from mlflow.tracking import MlflowClient

    original: Callable[..., Any] = getattr(MlflowClient, interrupted)
    calls = []

    def stops(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(interrupted)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, *arguments, **named)

    monkeypatch.setattr(MlflowClient, interrupted, stops)
    with pytest.raises(KeyboardInterrupt):
        tracking.import_results(MLflow(), results)
    monkeypatch.undo()
    done = [run for run in all_runs(results) if run.info.status == "FINISHED"]
    assert len(done) < 2
    again = tracking.import_results(MLflow(), results)
    assert again["imported"] == 2 - len(done)
    for run in runs(results).values():  # exactly one per scheme, each complete
        assert run.info.status == "FINISHED"
        assert run.data.metrics["step.loss"] == 0.5
        names = {file.path for file in client(results).list_artifacts(run.info.run_id)}
        assert names == {"result.json", "metrics.csv", "plan.json", "trace.json", "figures"}


# `z` comes last, so that the others would have been imported by then
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("result.json", '{"version": 2, "rung"', r"result\.json: not a result"),
        ("result.json", None, r"result\.json: version 1"),
        ("metrics.csv", "", r"metrics\.csv: can't be read"),
        ("metrics.csv", "step,loss\n0,1.0\n", r"metrics\.csv: can't be read.*columns"),
        ("metrics.csv", COLUMNS + "0,0,0,0,low,,\n", r"metrics\.csv: can't be read.*'low'"),
        ("metrics.csv", COLUMNS + "0,zero,0,0,1.0,,\n", r"metrics\.csv: can't be read.*zero"),
        ("metrics.csv", COLUMNS + ",0,0,0,1.0,,\n", r"metrics\.csv: can't be read"),
        ("metrics.csv", COLUMNS + "0,0,0,0,1.0,,,2.0\n1,2\n", r"metrics\.csv: can't be read"),
        ("metrics.csv", f"{TIMED}0,0,0.5,1.0,0.1,0.9\n0,8,,1.0,0.1,0.9\n", r"can't be read: row 2 has no seconds of"),
        ("metrics.csv", COLUMNS + f"0,{'9' * 30},0,0,1.0,,\n", r"metrics\.csv: can't be read"),
        ("metrics.csv", f"{TIMED}0,0,inf,1.0,0.1,0.9\n", r"can't be read: row 1 has no seconds of"),
    ],
)
def test_a_corrupt_result_is_refused_and_nothing_is_imported(results, file, content, message):
    folder = write_run(results, "z")
    if content is None:
        content = (folder / file).read_text().replace('"version": 2', '"version": 1')
    (folder / file).write_text(content)
    with pytest.raises(InputError, match=message) as refused:
        tracking.import_results(MLflow(), results)
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert all_runs(results) == []


def test_a_server_that_refuses_is_named(results, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(RunError, match=f"MLflow at {address}: ") as refused:
        tracking.import_results(MLflow(tracking_uri=address), results)
    assert "\n" not in str(refused.value)


def test_a_server_that_never_answers_is_named(results, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RunError, match=f"MLflow at {address}: .*[Tt]imed? ?out"):
            tracking.import_results(MLflow(tracking_uri=address), results)


def test_limits_on_waiting_are_set_unless_the_user_has_set_them(results, monkeypatch):
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    tracking.import_results(MLflow(), results)
    assert int(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) <= 3
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"


@pytest.mark.parametrize("address", ["nosuch://server", "sqlite:////dev/null/no/mlflow.db"])
def test_an_address_of_no_server_is_named(results, address):
    # a user who may not write into /dev gets that error before MLflow is called
    with pytest.raises((RunError, InputError), match=f"MLflow at {address}: |/dev/null/no: can't be written"):
        tracking.import_results(MLflow(tracking_uri=address), results)


def test_a_database_that_is_none_is_named(results):
    (results.parent / "mlflow.db").write_text("no database" * 100)
    with pytest.raises(RunError, match=r"MLflow at sqlite:.*not a database"):
        tracking.import_results(MLflow(), results)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_full_disk_is_said_and_not_tried_for_minutes(results, tmp_path, monkeypatch, when):
    """A quota is not seen before: then MLflow's own tries are few."""
    with mounted(tmp_path / "small", 4 << 20) as small:
        copied = small / "results" / "quick"
        shutil.copytree(results, copied)
        fill(small)
        if when == "meanwhile":
            monkeypatch.setattr(disk, "refuse", lambda *_: None)
        waited = []
        monkeypatch.setattr(time, "sleep", waited.append)
        with pytest.raises((InputError, RunError), match=r"no space left in .*/small"):
            tracking.import_results(MLflow(), copied)
        assert sum(waited) < 5


def test_a_database_that_another_program_writes_is_named(results, monkeypatch):
    monkeypatch.setattr(tracking, "LOCKED_SECONDS", 0.1)
    with closing(sqlite3.connect(results.parent / "mlflow.db", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RunError, match="database is locked: another program writes into it"):
            tracking.import_results(MLflow(), results)
