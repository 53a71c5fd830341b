"""What `gradsync elastic` has left of the launches that the paper shows: curves of the test error, seed by seed.

A launch stands for a point of the band of what the paper does not publish: learning rate, moving rate (learning rate x
rho) and batch of a worker. Of several launches at one point, with as many workers, each is a run of its own: they
differ in their iterations. Launches that train one seed again and again show nothing but whether that is reproducible.

A time that was taken while ranks shared cores says nothing of a machine with a core for each: such cells of a table are
empty, and what was seen is in columns of its own (`observed_...`). Between emulated hosts whose computation is told how
long to take, it is whether computation kept its time that counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.launches import ElasticTraining
from gradsync.configuration.settings import Settings
from gradsync.engine import breakdown
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers.declaration import Place, Source
from gradsync.papers.easgd_knl import gpu_node
from gradsync.papers.easgd_knl.gpu_node import SWEEPS, Iteration
from gradsync.papers.easgd_knl.names import MOMENTUM, SMALLER
from gradsync.papers.easgd_knl.testbed import MEGA, PAPER, bench, label
from gradsync.papers.repeats import LAUNCH, REPEATS, cells
from gradsync.papers.table import read
from gradsync.statistics.intervals import repeats_needed
from gradsync.statistics.quiet import UNDER_LOAD

CURVE = ["seed", "step", "seconds", "loss", "error"]
SLOWEST = "slowest_for_backward_seconds"
TRAINED = ("measured", "emulated")  # the rungs on which a training ran
ROUNDING = 1e-12  # a share of test samples that is written with decimals
OBSERVED = "observed_"


@dataclass(frozen=True)
class Run:
    """One method of one launch."""

    launch: ElasticTraining
    scheme: str
    result: Result
    curve: pd.DataFrame  # a row per test: CURVE

    @property
    def point(self) -> dict[str, str]:
        """Its point of the band."""
        launch = self.launch
        rates = {"learning_rate": f"{launch.lr:g}", "moving_rate": f"{launch.lr * launch.rho:g}"}
        return {**rates, "batch": f"{launch.batch}"}

    @property
    def network(self) -> dict[str, str]:
        """What emulated hosts add to that; nothing of ranks on this machine itself."""
        launch = self.launch
        if launch.testbed is None:
            return {}
        flow = "" if launch.flow_rate is None else f", {launch.flow_rate / MEGA:g} a connection"
        hosts = {"hosts": f"{launch.testbed} of {launch.rate / MEGA:g} Mbit/s{flow}"}
        return hosts | ({} if launch.compute_seconds is None else {"computation": f"{launch.compute_seconds:g} s"})

    @property
    def keys(self) -> dict[str, Any]:
        """The cells that say what it is.

        Methods do not run in turn, so that their repeats are no pairs on this machine itself. Between emulated hosts,
        whose times are those of links and of told computation, trainings of one seed on the same samples are pairs.
        """
        return {
            "rung": self.result.rung,
            "scheme": self.scheme,
            "model": self.launch.model,
            "nodes": self.launch.workers,
            "assumption": label(**self.point, **self.network),
            "data": self.launch.data,
            LAUNCH: self.launch.job if self.network else f"{self.launch.job}/{self.scheme}",
            REPEATS: len(self.seeds),
            "note": "; ".join(self.result.notes),
        }

    @property
    def crowded(self) -> bool:
        """Whether its ranks took longer than on cores of their own, or than they were told to; or other work did."""
        result, told = self.result, self.launch.options("cpu")
        if any(UNDER_LOAD in note for note in result.notes):
            return True
        if told.compute_seconds is not None:
            return not told.paced(result.summary.get(SLOWEST, np.inf))
        return result.ranks > result.provenance.get("cores", 0) and result.settings["device"] == "cpu"

    @property
    def per_turn(self) -> int:
        """Iterations of a turn as the paper counts them: in a sweep of Original EASGD, one of each worker."""
        return self.launch.workers if self.scheme in SWEEPS else 1

    @cached_property
    def seeds(self) -> list[int]:
        """Its seeds, in the order of the launch."""
        return [int(seed) for seed in self.curve.seed.unique()]

    @cached_property
    def by_seed(self) -> dict[int, pd.DataFrame]:
        """The curve of each seed."""
        return {seed: self.curve[self.curve.seed == seed] for seed in self.seeds}

    @property
    def turns(self) -> int:
        """Turns of a training."""
        return max(map(int, self.curve.step.tolist()))

    def reached(self, error: float) -> list[tuple[float, float] | None]:
        """By seed, iterations and seconds until the test error is no larger for the first time; None: never."""
        first = []
        for part in self.by_seed.values():
            there = part[part.error <= error + ROUNDING]
            first.append(None if there.empty else (there.step.iloc[0] * self.per_turn, float(there.seconds.iloc[0])))
        return first

    def ends(self) -> list[tuple[float, float, float]]:
        """By seed, iterations, seconds and test error of the whole training."""
        lasts = [part.iloc[-1] for part in self.by_seed.values()]
        return [(float(last.step) * self.per_turn, float(last.seconds), float(last.error)) for last in lasts]

    def timed(self, column: str, samples: Iterable[float] | None) -> dict[str, Any]:
        """Cells of a time: those that claims read are empty if ranks had no cores of their own."""
        values = np.array([] if samples is None else list(samples))
        seen = {f"{OBSERVED}{column}": float(np.median(values)) if len(values) else None}
        return seen if self.crowded else seen | cells(column, values)

    def decided(self, **values: float | None) -> dict[str, Any]:
        """Cells of simulated numbers that training decides: empty, with a note, of fewer seeds than an interval needs.

        What was seen is in columns of its own, as with times.
        """
        few = len(self.seeds) < repeats_needed()
        seen = {f"{OBSERVED}{column}": value for column, value in values.items()}
        note = {"note": f"{len(self.seeds)} seed(s), {repeats_needed()} are needed"} if few else {}
        return {**seen, **({} if few else values), **note}

    def simulated(self, settings: Settings) -> Iterator[tuple[dict[str, Any], Iteration]]:
        """The same training in the time of the paper's GPU node: keys and an iteration at each point of both bands.

        Of what was emulated there is none. Off the middle of its own band it is at the first point of the other alone
        (testbed.yaml).
        """
        if self.launch.testbed is not None:
            return
        file = bench(settings)
        points = gpu_node.band(settings)
        middle = {key: file.band(key, "value")[0] for key in self.point}
        if self.scheme in MOMENTUM:
            middle["learning_rate"] = f"{float(middle['learning_rate']) / SMALLER:g}"
        for point in points if self.point == middle else points[:1]:
            keys = {**self.keys, "rung": "simulated", "assumption": label(**point, **self.point), REPEATS: None}
            note = "" if self.scheme in (*gpu_node.SYNCHRONOUS, *SWEEPS) else "updates arrived as they did here"
            yield {**keys, "note": note}, gpu_node.iteration(self.scheme, self.launch.workers, point, file)


def elastic_runs(*methods: str, workers: int | None = None, by_length: bool = False) -> Source:
    """What the launches leave behind that train any of the methods.

    With so many workers, if that is told; `by_length`: without those that stop at an error, which have no length.
    """
    return lambda place: _left(place, _launches(place.settings, methods, workers, by_length))


def elastic_runs_again(place: Place) -> list[Path]:
    """What the launches leave behind that train one seed several times."""
    return _left(place, _launches_again(place.settings))


def _left(place: Place, launches: Iterable[ElasticTraining]) -> list[Path]:
    return [place.results / "runs" / "elastic" / launch.job / "schemes.json" for launch in launches]


def _launches(
    settings: Settings, methods: Collection[str], workers: int | None, by_length: bool
) -> list[ElasticTraining]:
    return [
        launch
        for launch in settings.elastic_of(PAPER)
        if not (launch.again or (by_length and launch.stop_at_target))
        and {*methods} & {*launch.methods}
        and workers in (None, launch.workers)
    ]


def _launches_again(settings: Settings) -> list[ElasticTraining]:
    return [each for each in settings.elastic_of(PAPER) if each.again]


def runs(
    settings: Settings,
    results: Path,
    methods: Collection[str],
    papers_data: str = "mnist",
    workers: int | None = None,
    by_length: bool = False,
) -> list[Run]:
    """The runs of these methods on one data set, the paper's if a launch has it; otherwise as `elastic_runs`.

    Raises InputError if a launch has not ended, or a file of it can't be read.
    """
    chosen = _on_one_data_set(_launches(settings, methods, workers, by_length), papers_data)
    return [_run(launch, scheme, results) for launch in chosen for scheme in launch.methods if scheme in methods]


def runs_again(settings: Settings, results: Path) -> list[Run]:
    """The runs that train one seed several times, as `runs`."""
    chosen = _on_one_data_set(_launches_again(settings), "mnist")
    return [_run(launch, scheme, results) for launch in chosen for scheme in launch.methods]


def _on_one_data_set(launches: list[ElasticTraining], papers_data: str) -> list[ElasticTraining]:
    of_paper = [launch for launch in launches if launch.data == papers_data]
    return of_paper or [launch for launch in launches if launch.data == "digits"]


def _run(launch: ElasticTraining, scheme: str, results: Path) -> Run:
    folder = results / "runs" / "elastic" / launch.job / scheme
    curve = read(folder / "metrics.csv", CURVE)
    if not all(pd.api.types.is_numeric_dtype(curve[column]) for column in CURVE):
        raise InputError(f"{folder / 'metrics.csv'}: not a curve: a cell is no number: delete it and run again")
    return Run(launch, scheme, Result.load(folder / "result.json"), curve.dropna(subset=["error"]))


def grouped(all_runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ in their iterations alone, the shortest first; of several as long, the first counts."""
    groups: dict[Any, dict[int, Run]] = {}
    for run in all_runs:
        key = run.scheme, run.launch.model, run.launch.workers, label(**run.point, **run.network)
        groups.setdefault(key, {}).setdefault(run.turns, run)
    return [[group[turns] for turns in sorted(group)] for group in groups.values()]


def longest(all_runs: Iterable[Run]) -> list[Run]:
    """Of runs that differ in their iterations alone, the longest."""
    return [group[-1] for group in grouped(all_runs)]


PARTS = {
    "gpu_gpu_para": breakdown.AMONG_WORKERS,
    "cpu_gpu_data": breakdown.DATA,
    "cpu_gpu_para": breakdown.WITH_MASTER,
    "for_backward": breakdown.FOR_BACKWARD,
    "gpu_update": breakdown.WORKER_UPDATE,
    "cpu_update": breakdown.MASTER_UPDATE,
}  # the paper's name of a part: ours
