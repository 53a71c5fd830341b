"""The runs of this machine for this paper, emulated launches and trainings, as rows of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers.ascwfbp.testbed import MODELS, SCHEMES, Bench
from gradsync.papers.emulated import NO_LAUNCH, runs
from gradsync.papers.labels import REFERENCES
from gradsync.papers.repeats import cells, of_a_quiet_machine
from gradsync.papers.training import repeated

PAPER = "ascwfbp"
SECONDS = ("iteration_seconds", "computation_seconds", "exposed_communication_seconds", "waiting_seconds")


def emulated(settings: Settings, results: Path, testbed: Bench) -> Iterator[dict[str, Any]]:
    """The emulated launches, one host per node; if there is none on the paper's testbed, rows with the reason."""
    # on the links of the paper's testbed; launches on other links are in table `emulated`
    launches = [launch for launch in settings.emulated_of(PAPER) if launch.flow_share is None]
    launched = {(launch.model, launch.ranks) for launch in launches}
    for model in MODELS:
        if (model, testbed.nodes) not in launched:
            for scheme in SCHEMES:
                yield _missing("emulated", model, testbed, scheme, NO_LAUNCH)
    listed = set()
    for launch in launches:
        if (launch.model, launch.ranks) in listed:
            continue
        listed.add((launch.model, launch.ranks))
        base = {"rung": "emulated", "model": launch.model, "nodes": launch.ranks, "assumption": ""}
        base |= {"workers": launch.ranks}
        contenders, reason = runs(launch, results)
        for scheme in launch.schemes if reason else ():
            yield {**base, "launch": launch.job, "scheme": scheme, "note": reason}
        for run in contenders:
            row = {
                **base,
                **run.repeated(),
                "scheme": run.name,
                "computation_seconds": run.computation_seconds,
                **cells("exposed_communication_seconds", run.exposed()),
                **cells("waiting_seconds", run.samples("waiting_seconds")),
                "messages": run.result.summary.get("messages"),
                "hard_bound_seconds": run.hard_bound_seconds,
                "model_bound_seconds": run.model_bound_seconds,
                "largest_speedup": run.largest_speedup,
                "note": "; ".join([*run.result.notes, f"time {run.launch.dilation:g} times slower"]),
            }
            yield of_a_quiet_machine(row, run.result.notes)


def measured(settings: Settings, results: Path, testbed: Bench) -> Iterator[dict[str, Any]]:
    """The trainings of this configuration; if there is none of the paper's size, rows with the reason.

    A launch on as many ranks as the paper has GPUs stands for its 8 nodes; any other has no number of nodes for claims.
    """
    jobs = settings.of(PAPER)
    for model in MODELS:
        if not any((job.model, job.ranks) == (model, testbed.workers) for job in jobs):
            note = f"no training of {model} on {testbed.workers} ranks in this configuration"
            for scheme in SCHEMES:
                yield _missing("measured", model, testbed, scheme, note)
    for job in jobs:
        folder = results / "runs" / "train" / job.job
        for name in _contenders(folder):
            result = Result.load(folder / name / "result.json")
            row = {
                "rung": "measured",
                "model": job.model,
                "nodes": testbed.nodes if job.ranks == testbed.workers else float("nan"),
                "workers": job.ranks,
                "launch": job.job,
                "scheme": name,
                "assumption": "",
                **{key: result.summary.get(key) for key in (*SECONDS, "messages")},
                **repeated(result),
                "note": "; ".join(result.notes),
            }
            yield of_a_quiet_machine(row, result.notes)


def reasons(frame: pd.DataFrame) -> str:
    """Why values are missing, one sentence per rung."""
    missing = frame[frame.iteration_seconds.isna()]
    sentences = [
        f"{rung}: {'; '.join(dict.fromkeys(part.note))}"
        for rung, part in missing[missing.rung != "simulated"].groupby("rung", sort=False)
    ]
    return f" Missing: {'. '.join(sentences)}." if sentences else ""


def _missing(rung: str, model: str, testbed: Bench, scheme: str, note: str) -> dict[str, Any]:
    row = {"rung": rung, "model": model, "nodes": testbed.nodes, "workers": testbed.workers, "scheme": scheme}
    return {**row, "assumption": "", "note": note}


def _contenders(folder: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads((folder / "schemes.json").read_text()) if name not in REFERENCES]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder / 'schemes.json'}: can't be read: {error}: delete it and run again") from None
