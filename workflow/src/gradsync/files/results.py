"""What a job leaves behind: `result.json` (settings, provenance, summary) beside `metrics.csv` and `trace.json`.

These files are the source of truth; tables, figures, claims and MLflow read them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync import __version__
from gradsync.errors import InputError
from gradsync.files import checkout, reading
from gradsync.files.problems import first_problem
from gradsync.files.writing import remove_unfinished, write_whole

__all__ = [
    "CONTENDERS",
    "OPERATION",
    "TIMED",
    "VERSION",
    "Result",
    "Rung",
    "begin_results",
    "machine",
    "today",
    "write_contenders",
    "write_whole",
]

VERSION = 2
Rung = Literal["published", "simulated", "emulated", "measured"]
OPERATION = "seconds_of_"  # what samples of an operation of a plan are called, before its name
CONTENDERS = "schemes.json"  # of a launch, the names of all results; written last
TIMED = ("emulated", "measured")  # rungs whose numbers are times that were taken; each has an interval, or is unknown


class Result(BaseModel):
    """One run of one scheme. `summary` holds numbers (seconds, ratios, shares), `notes` what a reader must know.

    `samples` holds, by name, the repeats that numbers of the summary are medians of: one value per block of the launch,
    in order, so that those of two runs of one launch are pairs.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")  # else they become null, unreadable
    version: int = VERSION
    rung: Rung
    paper: str = ""
    table: str = ""
    scheme: str
    model: str
    ranks: int = Field(ge=1)
    settings: dict[str, Any] = Field(default_factory=dict)
    provenance: dict[str, Any] = Field(default_factory=dict)
    summary: dict[str, float] = Field(default_factory=dict)
    samples: dict[str, list[float]] = Field(default_factory=dict)
    conformance: dict[str, Any] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)

    def save(self, folder: Path) -> Path:
        """Write `result.json` into `folder`, whole or not at all."""
        path = folder / "result.json"
        write_whole(path, self.model_dump_json(indent=1) + "\n")
        return path

    @staticmethod
    def load(path: Path) -> Result:
        """Read a file; raises InputError if it is missing, corrupt or of another version."""
        try:
            result = Result.model_validate_json(reading.raw(path, "result"))
        except ValidationError as error:
            raise InputError(
                f"result {path}: not a result: {first_problem(error, Result)}: delete it and run again"
            ) from None
        if result.version != VERSION:
            raise InputError(f"result {path}: version {result.version}; this gradsync reads version {VERSION}")
        return result

    def key(self) -> str:
        """Hash of settings and results, by which a tracking server knows this run."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def begin_results(folder: Path) -> None:
    """Take away the list of an earlier launch's results, which would tell of those to come, and its unfinished files.

    For a folder into which nobody else writes.
    """
    (folder / CONTENDERS).unlink(missing_ok=True)
    remove_unfinished(folder)


def write_contenders(folder: Path, names: Iterable[str]) -> None:
    """Write the names of all results of a launch, which are there by now, each with the digest of its result.

    Snakemake takes a small file of the same content for the same: what is measured again must not look as before.
    """
    digests = {name: hashlib.sha256((folder / name / "result.json").read_bytes()).hexdigest() for name in names}
    write_whole(folder / CONTENDERS, json.dumps(digests, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Hardware and software of this machine, the commit that runs and the day, for the provenance of a measurement."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith(("model name", "Hardware", "CPU part"))
        ),
        platform.processor() or platform.machine(),
    )
    return {
        "gradsync": __version__,
        "code": checkout.running(),
        "date": today(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        **({"image": Path(os.environ["APPTAINER_CONTAINER"]).name} if "APPTAINER_CONTAINER" in os.environ else {}),
    }


def today() -> str:
    """The day in UTC, `2026-11-25`."""
    return datetime.now(UTC).date().isoformat()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
