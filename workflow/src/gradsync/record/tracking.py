"""Import results into MLflow, idempotently: a run is identified by the hash of its settings and its results.

One process imports after all jobs, so that nothing races for the database and no timed loop ever logs.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gradsync.configuration.settings import MLflow
from gradsync.errors import InputError, RunError
from gradsync.files import disk
from gradsync.files.results import Result

KEY = "gradsync.key"
ARTIFACTS = ("plan.json", "trace.json", "metrics.csv", "arrivals.csv", "result.json")
DATABASE_BYTES = 4e6  # a new database, and room for its journal
LOCKED_SECONDS = 5.0  # in which another program's write ends
TRIES = 3  # attempts to open a database: MLflow's own 10 take minutes
MOST_SECONDS = 1e12  # of a training; more, and infinity, are no times
BATCH = 1000  # metrics per call, the server's limit
BY_STEP = ("loss", "iteration_seconds", "accuracy")  # columns of `metrics.csv` that are drawn over steps
SOME_HAVE = ("error", "bleu", "seconds")  # columns of some; seconds of training are the time of a step's values


class Step(NamedTuple):
    """A value of a metric; `milliseconds` of training until then, 0 if that isn't recorded."""

    metric: str
    value: float
    step: int
    milliseconds: int


def import_results(settings: MLflow, results: Path) -> dict[str, Any]:
    """Import every `runs/**/result.json` below `results`; returns counts, and MLflow's id of each run by key.

    Raises InputError if a result is corrupt and RunError if the tracking server can't be reached.
    """
    files = sorted((results / "runs").rglob("result.json"))
    # all results are read before anything is written
    loaded = [(file.parent, Result.load(file), _by_step(file.parent / "metrics.csv")) for file in files]
    address = settings.tracking_uri or f"sqlite:///{(results.parent / 'mlflow.db').resolve()}"
    os.environ.setdefault("MLFLOW_ENABLE_TELEMETRY", "false")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")  # seconds, for a server that never answers
    database = Path(address.removeprefix("sqlite:///")) if address.startswith("sqlite:///") else None
    if database is not None:
        _refuse_database(database)
    from mlflow.exceptions import MlflowException
    from mlflow.store.db import utils
    from mlflow.tracking import MlflowClient
    from sqlalchemy.exc import SQLAlchemyError

    logging.getLogger("alembic").setLevel(logging.WARNING)
    utils.MAX_RETRY_COUNT = TRIES
    try:
        client = MlflowClient(tracking_uri=address)
        experiment = client.get_experiment_by_name(settings.experiment)
        # a server knows where its artefacts go; those of a database file would land in the working directory
        location = (results.parent / "mlflow-artifacts").resolve().as_uri() if address.startswith("sqlite:") else None
        experiment_id = (
            experiment.experiment_id if experiment else client.create_experiment(settings.experiment, location)
        )
        known = _known(client, experiment_id)
        new = 0
        if database is not None:
            needed = sum(_artifact_bytes(folder) for folder, result, _ in loaded if result.key() not in known)
            disk.refuse(database.parent, needed + DATABASE_BYTES, "the results that are new to MLflow")
        for folder, result, steps in loaded:
            if result.key() in known:
                continue
            known[result.key()] = _import(client, experiment_id, folder, result, steps, results)
            new += 1
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise RunError(f"MLflow at {address}: {_reason(error, database)}") from None
    return {
        "tracking_uri": address,
        "experiment_id": experiment_id,
        "imported": new,
        "known": len(loaded) - new,
        "runs": {result.key(): known[result.key()] for _, result, _ in loaded},
    }


def _refuse_database(path: Path) -> None:
    """Raises InputError if there is no room for the database, RunError if it can't be written for another reason.

    MLflow would try again for minutes, whatever the reason.
    """
    disk.refuse(path.parent, DATABASE_BYTES, "the database of MLflow")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "")
        with closing(sqlite3.connect(path, timeout=LOCKED_SECONDS, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
    except (OSError, sqlite3.Error) as error:
        raise RunError(f"MLflow at sqlite:///{path}: {_reason(error, path)}") from None


def _reason(error: Exception, database: Path | None) -> str:
    message = str(error).splitlines()[0]
    if isinstance(error, OSError) and database is not None:
        return disk.reason(error, database.parent)
    if "is full" in message and database is not None:
        return disk.reason(OSError(errno.ENOSPC, ""), database.parent)
    if "is locked" in message:
        return f"{message}: another program writes into it: wait for it, or end it"
    if "not a database" in message:
        return f"{message}: move it away, and the next run makes a new one"
    return message


def _artifact_bytes(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in ARTIFACTS if (folder / name).is_file())


def _known(client: Any, experiment: str) -> dict[str, str]:
    """The id of each imported run, by its key."""
    known: dict[str, str] = {}
    token = None
    while True:
        page = client.search_runs([experiment], max_results=1000, page_token=token)
        # a run that an interrupted import left unfinished does not count, and is deleted
        for run in page:
            if run.info.status == "FINISHED":
                known[run.data.tags.get(KEY, "")] = run.info.run_id
            elif KEY in run.data.tags:
                client.delete_run(run.info.run_id)
        token = page.token
        if not token:
            return known


def _import(client: Any, experiment: str, folder: Path, result: Result, steps: list[Step], results: Path) -> str:
    """Import one run, and return its id."""
    from mlflow.entities import Metric, Param, RunTag

    tags = {
        KEY: result.key(),
        "paper": result.paper,
        "table": result.table,
        "rung": result.rung,
        "scheme": result.scheme,
        "model": result.model,
        "ranks": str(result.ranks),
        **{f"provenance.{key}": str(value)[:500] for key, value in result.provenance.items()},
        **{f"conformance.{key}": str(value) for key, value in result.conformance.items()},
        **{f"seed.{seed}": "yes" for seed in _seeds(result)},
    }
    if result.notes:
        tags["mlflow.note.content"] = "\n".join(result.notes)
    name = f"{result.model} {result.scheme} {result.ranks} {result.rung}"
    run: str = client.create_run(experiment, tags=tags, run_name=name).info.run_id
    params = [Param(key, str(value)[:6000]) for key, value in result.settings.items()]
    metrics = [Metric(key, value, 0, 0) for key, value in result.summary.items() if math.isfinite(value)]
    metrics += [Metric(f"step.{each.metric}", each.value, each.milliseconds, each.step) for each in steps]
    client.log_batch(run, params=params, tags=[RunTag(key, value) for key, value in tags.items()])
    for start in range(0, len(metrics), BATCH):
        client.log_batch(run, metrics=metrics[start : start + BATCH])
    for name in ARTIFACTS:
        if (folder / name).is_file():
            client.log_artifact(run, str(folder / name))
    for figure in (results / "figures" / result.paper).glob(f"{result.table}.svg"):
        client.log_artifact(run, str(figure), "figures")
    client.set_terminated(run)
    return run


def _seeds(result: Result) -> list[Any]:
    seeds = result.settings.get("seeds", [])
    return list(seeds) if isinstance(seeds, list | tuple) else []


def _by_step(path: Path) -> list[Step]:
    """Every finite value of a `metrics.csv`; raises InputError if it is corrupt.

    The first seed has the plain names, so that runs of one seed and of several can be compared; another has its number
    behind them (`loss.seed1`).
    """
    if not path.is_file():
        return []
    types: dict[str, type] = {"seed": int, "step": int, **dict.fromkeys((*BY_STEP, *SOME_HAVE), float)}
    try:
        frame = pd.read_csv(path, usecols=lambda column: column in types, dtype=types)
        if missing := [column for column in types if column not in frame and column not in SOME_HAVE]:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
        if "seconds" in frame and len(gaps := frame[~frame.seconds.between(0, MOST_SECONDS)]):
            raise ValueError(f"row {gaps.index[0] + 1} has no seconds of training")
    except (OSError, ValueError, OverflowError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"metrics {path}: can't be read: {reason}: delete it and run again") from None
    columns = [*BY_STEP, *(column for column in ("error", "bleu") if column in frame)]
    frame["milliseconds"] = (1e3 * frame["seconds"]).round().astype(int) if "seconds" in frame else 0
    return [
        Step(f"{column}.seed{seed}" if later else column, *values)
        for later, (seed, part) in enumerate(frame.groupby("seed", sort=False))
        for column in columns
        for values in zip(part[column].tolist(), part.step.tolist(), part.milliseconds.tolist(), strict=True)
        if math.isfinite(values[0])
    ]
