"""The emulated launches of this configuration as rows of Fig. 7, Fig. 8 and Table 3.

An aggregation takes the times of its operations on rank 0, without waiting for other ranks. A dense method has no
density: its row is there for each density of the launch's sparse ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync import topologies
from gradsync.configuration import schemes
from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.files.results import OPERATION
from gradsync.papers.cloud_topk.cases import DENSE, MSTOPK, TORUS, case, scaling
from gradsync.papers.cloud_topk.emulation import CASES, PART, elements_of
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.cloud_topk.steps import METHODS, by_step
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.declaration import Place
from gradsync.papers.emulated import NO_LAUNCH, Run, runs
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, of_a_quiet_machine

ASKED = (4_000_000, 16_000_000)  # elements that claims on Fig. 7 ask for
STEPS_OF = {25_000_000: "resnet50"}  # elements that stand for a model of Fig. 8
TRAINED = (DENSE, TORUS, MSTOPK)
BESIDE = ("encode", "decode")  # operations of NaiveAG that do not count
Rows = Iterator[dict[str, Any]]


def shape(launch: Emulation) -> tuple[int, int]:
    """(nodes, GPUs of a node); each rank is a node if the topology has none."""
    together = topologies.parse(launch.topology, launch.ranks).ranks_a_node or 1
    return -(-launch.ranks // together), together


def vectors_left(place: Place) -> list[Path]:
    """What the launches of one gradient leave behind."""
    return _left(place, _vectors(place.settings))


def trainings_left(place: Place) -> list[Path]:
    """What the launches of models leave behind."""
    return _left(place, trainings(place.settings))


def _left(place: Place, launches: Iterable[Emulation]) -> list[Path]:
    return [place.results / "runs" / "emulated" / launch.job / "status.json" for launch in launches]


def methods(settings: Settings, results: Path) -> Rows:
    """Rows of Fig. 7, by method, elements and density; rows with the reason for what claims ask for in vain."""
    known = schemes.load(settings.schemes)
    densities = bench(settings).file.numbers("emulated", "densities")
    listed, reasons = set(), {}
    for launch in _vectors(settings):
        elements, (nodes, together) = elements_of(launch), shape(launch)
        launched, reasons[elements] = runs(launch, results)
        for run in launched:
            scheme = known.get(run.name)
            if scheme is None or scheme.collective not in METHODS:
                continue
            row = {"rung": "emulated", "scheme": scheme.collective, "elements": elements, "nodes": nodes}
            row |= {"gpus_per_node": together, "assumption": "", LAUNCH: launch.job, "note": _note(run)}
            samples = _summed(run, () if scheme.collective == "hitopk" else BESIDE)
            for density in densities if scheme.density is None else (scheme.density,):
                key = (scheme.collective, elements, nodes, together, density)
                if key not in listed:
                    listed.add(key)
                    timed = row | {"density": density, REPEATS: len(samples), **cells("seconds", samples)}
                    yield of_a_quiet_machine(timed, run.result.notes)
    nodes, together = topologies.parse(bench(settings).file.text("emulated", "topology")).shape[::-1]
    for elements in ASKED:
        for density in densities:
            for method in METHODS:
                if (method, elements, nodes, together, density) not in listed:
                    row = {"rung": "emulated", "scheme": method, "elements": elements, "nodes": nodes}
                    row |= {"gpus_per_node": together, "density": density, "assumption": ""}
                    yield row | {"note": reasons.get(elements) or NO_LAUNCH}


def steps(settings: Settings, results: Path) -> Rows:
    """Rows of Fig. 8; one with the reason if there are none."""
    known = schemes.load(settings.schemes)
    reason, any_row = NO_LAUNCH, False
    for launch in _vectors(settings):
        model, (nodes, together) = STEPS_OF.get(elements_of(launch)), shape(launch)
        if model is None:
            continue
        launched, why = runs(launch, results)
        reason = why or reason
        for run in launched:
            scheme = known.get(run.name)
            if scheme is None or scheme.collective != "hitopk":
                continue
            of_step = _by_step(run)
            for step, samples in of_step.items():
                any_row = True
                row = {"rung": "emulated", "model": model, "step": step, "density": scheme.density, "nodes": nodes}
                row |= {"gpus_per_node": together, "assumption": "", LAUNCH: launch.job, "note": _note(run)}
                timed = row | {REPEATS: len(samples), **cells("seconds", samples)}
                yield of_a_quiet_machine(timed, run.result.notes)
    if not any_row:
        nodes, together = topologies.parse(bench(settings).file.text("emulated", "topology")).shape[::-1]
        for step in by_step({}):
            row = {"rung": "emulated", "model": "resnet50", "step": step, "density": 0.01, "nodes": nodes}
            yield row | {"gpus_per_node": together, "assumption": "", "note": reason}


def iterations(settings: Settings, results: Path) -> Rows:
    """Rows of Table 3: iterations whose computation is replayed."""
    testbed = bench(settings)
    nodes, together = topologies.parse(testbed.file.text("emulated", "topology")).shape[::-1]
    launches = {CASES[each.model]: each for each in trainings(settings) if shape(each) == (nodes, together)}
    for model in CASES.values():
        base = {"rung": "emulated", "model": model, "nodes": nodes, "workers": nodes * together, "assumption": ""}
        launch = launches.get(model)
        launched, reason = runs(launch, results) if launch else ([], NO_LAUNCH)
        if launch is None or reason:
            yield from ({**base, "scheme": scheme, "note": reason} for scheme in TRAINED)
            continue
        one = case(testbed, model, testbed.points[0], "table3")
        for run in launched:
            row = {**base, **run.repeated(), "scheme": run.name, "batch": one.batch}
            row |= {"computation_seconds": run.computation_seconds, "hard_bound_seconds": run.hard_bound_seconds}
            row |= cells("exposed_communication_seconds", run.exposed())
            # a part of a model stands for all of it, in so many times the seconds
            whole = PART.get(launch.model, 1)
            alone = one.batch / (whole * run.computation_seconds)  # samples per second of the GPU that is replayed
            for column, samples in scaling(whole * run.samples(), one.batch, alone, nodes * together).items():
                row |= cells(column, samples)
            yield of_a_quiet_machine(row | {"note": _note(run)}, run.result.notes)


def trainings(settings: Settings) -> list[Emulation]:
    """The launches that replay a model."""
    return [each for each in settings.emulated_of(PAPER) if not elements_of(each) and each.model in CASES]


def missing(frame: pd.DataFrame) -> str:
    """Why emulated values are missing: a sentence for a caption, or nothing."""
    column = "seconds" if "seconds" in frame else "iteration_seconds"
    notes = frame.note[(frame.rung == "emulated") & frame[column].isna()]
    return f" Emulated: {'; '.join(dict.fromkeys(notes))}." if len(notes) else ""


def _vectors(settings: Settings) -> list[Emulation]:
    """The launches of a single gradient."""
    return [each for each in settings.emulated_of(PAPER) if elements_of(each)]


def _note(run: Run) -> str:
    return "; ".join([*run.result.notes, f"time {run.launch.dilation:g} times slower"])


def _operations(run: Run) -> dict[str, np.ndarray]:
    """Seconds of each operation, block by block."""
    return {key.removeprefix(OPERATION): run.samples(key) for key in run.result.samples if key.startswith(OPERATION)}


def _summed(run: Run, without: tuple[str, ...] = ()) -> np.ndarray:
    counted = [each for name, each in _operations(run).items() if not name.startswith(without or "-")]
    return np.sum(counted, axis=0) if counted else np.array([])


def _by_step(run: Run) -> dict[str, np.ndarray]:
    operations = _operations(run)
    blocks = min((len(each) for each in operations.values()), default=0)
    by_block = [by_step({name: each[block] for name, each in operations.items()}) for block in range(blocks)]
    return {step: np.array([block[step] for block in by_block]) for step in by_step({})} if by_block else {}
