"""Every run that has left a result: what it was, how long an iteration took, and the files and the MLflow run of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gradsync.files import reading
from gradsync.files.results import Result
from gradsync.site.links import Link, Links

FILES = {"result": "result.json", "plan": "plan.json", "trace": "trace.json", "metrics": "metrics.csv"}
LOGS = {"train": "train", "emulated": "emulate"}  # by folder of runs: that of their logs
SERVER = "http://127.0.0.1:5000"  # where `mlflow ui` listens


class Run(NamedTuple):
    """One scheme or peer of one launch; `seconds` an iteration takes, `interval` of them at 95 % if there is one."""

    kind: str
    job: str
    result: Result
    seconds: str
    interval: str
    files: list[Link]
    mlflow: str


def runs(results: Path) -> list[Run]:
    """All runs below the results, launch by launch; raises InputError if a result is corrupt."""
    links, tracked = Links(results), _tracked(results)
    found = []
    for file in sorted((results / "runs").rglob("result.json")):
        folder = file.parent.relative_to(results)
        result = Result.load(file)
        kind, job = folder.parts[1], folder.parent.name
        paths = {label: folder / name for label, name in FILES.items()}
        paths |= {"prediction": Path("plans", job, f"{folder.name}.prediction.json")}
        paths |= {"log": Path("logs", LOGS.get(kind, kind), f"{job}.log")}
        found.append(Run(kind, job, result, *_seconds(result), links.present(**paths), _mlflow(tracked, result)))
    return found


def mlflow_command(results: Path) -> str:
    """The command that serves the imported runs to the links; empty if a server has them, or none are.

    It is to be given in the folder that gradsync ran in, if the results were named from there.
    """
    address = str(_tracked(results).get("tracking_uri", ""))
    own = results.parent / "mlflow.db"
    if address == f"sqlite:///{own.resolve()}":
        address = f"sqlite:///{own}"
    return f"mlflow ui --backend-store-uri {address}" if address.startswith("sqlite:") else ""


def _seconds(result: Result) -> tuple[str, str]:
    summary = result.summary
    if "iteration_seconds" not in summary:
        return "", ""
    ends = [summary[key] for end in ("low", "high") if (key := f"iteration_seconds_{end}") in summary]
    return f"{summary['iteration_seconds']:.4g}", " to ".join(f"{end:.4g}" for end in ends)


def _tracked(results: Path) -> dict[str, Any]:
    """What the import into MLflow has left; empty if nothing was imported."""
    file = results / "tracked.json"
    content = reading.json_of(file, "import") if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def _mlflow(tracked: dict[str, Any], result: Result) -> str:
    """The address of the run in MLflow, by its id; empty if it wasn't imported."""
    ids = tracked.get("runs")
    run = ids.get(result.key()) if isinstance(ids, dict) else None
    if run is None or "experiment_id" not in tracked:
        return ""
    address = str(tracked.get("tracking_uri", ""))
    server = address.rstrip("/") if address.startswith(("http://", "https://")) else SERVER
    return f"{server}/#/experiments/{quote(str(tracked['experiment_id']), safe='')}/runs/{quote(str(run), safe='')}"
