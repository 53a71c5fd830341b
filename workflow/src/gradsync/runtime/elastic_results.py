"""What rank 0 writes of a training of one plan: `<plan>/{result.json, metrics.csv, arrivals.csv, trace.json, ...}`."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradsync.configuration.elastic import Elastic
from gradsync.engine import breakdown
from gradsync.engine.masters import kept, masters, workers
from gradsync.files.results import Result, write_whole
from gradsync.plan import Plan
from gradsync.plan.trace import Span, Trace
from gradsync.runtime import models
from gradsync.runtime.devices import Device
from gradsync.runtime.sessions import Session
from gradsync.statistics import quiet
from gradsync.statistics.intervals import median_interval

UNRECORDED = ("checkpoint_seconds", "paper", "keep")  # options that change no number


def recorded(options: Elastic, testbed: dict[str, Any] | None) -> dict[str, Any]:
    """The settings that results and checkpoints hold: options that a number may depend on, and the testbed."""
    settings = {key: value for key, value in asdict(options).items() if key not in UNRECORDED}
    return {**settings, "testbed": testbed}


@dataclass
class Course:
    """The course of a launch over all seeds so far, on rank 0: plain values, so that a checkpoint can hold it."""

    seed: int = 0  # index into the seeds
    turns: int = 0  # iterations of that seed
    points: list[tuple[int, int, float, float, float, float | None]] = field(default_factory=list)
    """(seed, iterations, seconds, seconds of an iteration, loss, test accuracy) after each segment."""
    arrivals: list[tuple[int, int, int, str, int, int]] = field(default_factory=list)
    """(seed, place, turn, operation, source, staleness) of each update (`engine/staleness.py`)."""
    parts: dict[str, dict[str, float]] = field(default_factory=dict)  # by seed: seconds, all workers together
    slowest: float = 0.0  # seconds of forward and backward, of the worker that took longest in each iteration
    before: list[tuple[float, float]] = field(default_factory=list)  # by seed: seconds of reading, of initialisation
    lost: float = 0.0  # of what was added without a lock
    added: float = 0.0
    finals: dict[str, str] = field(default_factory=dict)  # by seed, digest of the trained model
    again: list[str] = field(default_factory=list)  # such digests of the first seed, trained again
    conformance: dict[str, Any] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    updates: list[tuple[int, int]] = field(default_factory=list)  # state of the arrivals of this seed
    read: list[tuple[int, int, int]] = field(default_factory=list)

    @staticmethod
    def restored(values: dict[str, Any]) -> Course:
        """What a checkpoint held."""
        return Course(**values)

    def begin(self, index: int) -> None:
        """Begin with the seed of that index."""
        self.seed, self.turns, self.updates, self.read = index, 0, [], []

    def begin_seed(self, reading: float, initialising: float) -> None:
        """Its samples are read, and everything is built, in so many seconds."""
        self.before.append((reading, initialising))

    def segment(self, seed: int, turns: int, seconds: float, loss: float, accuracy: float | None) -> None:
        """A segment of so many iterations is over."""
        past = self.points[-1][2] if self.points and self.points[-1][0] == seed else 0.0
        self.points.append((seed, self.turns, past + seconds, seconds / turns, loss, accuracy))

    def add_parts(self, seed: int, seconds: dict[str, float]) -> None:
        """Seconds of the parts of a segment."""
        parts = self.parts.setdefault(str(seed), {})
        for part, value in seconds.items():
            parts[part] = parts.get(part, 0.0) + value

    def metrics(self) -> str:
        """One row per segment."""
        lines = ["seed,step,seconds,iteration_seconds,loss,accuracy,error"]
        for *measured, accuracy in self.points:
            tested = (None, None) if accuracy is None else (accuracy, 1 - accuracy)
            lines.append(",".join("" if cell is None else repr(cell) for cell in (*measured, *tested)))
        return "\n".join(lines) + "\n"

    def distinct(self) -> set[str]:
        """Digests of the first seed's trained models, of all its trainings."""
        return {next(iter(self.finals.values())), *self.again}

    def ends(self) -> dict[int, tuple[float, float | None]]:
        """By seed: seconds and test accuracy at the end."""
        return {seed: (seconds, accuracy) for seed, _, seconds, _, _, accuracy in self.points}

    def last_turns(self) -> dict[int, int]:
        """By seed: its iterations."""
        return {seed: turns for seed, turns, *_ in self.points}

    def reached(self, error: float) -> dict[int, tuple[int, float]]:
        """By seed that gets there: iterations and seconds until the test error is no larger for the first time."""
        first: dict[int, tuple[int, float]] = {}
        for seed, turns, seconds, _, _, accuracy in self.points:
            # a share of test samples that is written with decimals must not fail by rounding
            if accuracy is not None and 1 - accuracy <= error + 1e-12:
                first.setdefault(seed, (turns, seconds))
        return first

    def reached_all(self, seed: int, errors: Iterable[float]) -> bool:
        """Whether the training of a seed has got to each of these test errors."""
        return all(seed in self.reached(error) for error in errors)


@dataclass
class Results:
    """All that results are made of besides the course, on rank 0."""

    plan: Plan
    options: Elastic
    testbed: dict[str, Any] | None
    device: Device
    machines: dict[str, Any]
    before: Plan | None = None  # by which the training began
    spans: list[Span] = field(default_factory=list)  # the last ones
    turns_an_epoch: int = 0
    notes: list[str] = field(default_factory=list)

    def save_curve(self, course: Course, folder: Path) -> None:
        """Write what is known so far, which stays if the launch is ended."""
        write_whole(folder / self.plan.name / "metrics.csv", course.metrics())

    def save_parameters(self, folder: Path, seed: int, flat: np.ndarray) -> None:
        """Write the trained model of a seed, in the plan's order of tensors."""
        content = io.BytesIO()
        np.save(content, flat)
        path = folder / self.plan.name / f"final-{seed}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.getvalue())

    def save(self, course: Course, folder: Path) -> None:
        """Write all files of the plan, its result last."""
        place = folder / self.plan.name
        self.save_curve(course, folder)
        header = "seed,place,turn,operation,source,staleness\n"
        rows = (",".join(map(str, row)) for row in course.arrivals)
        write_whole(place / "arrivals.csv", header + "".join(f"{row}\n" for row in rows))
        each, origin = self.plan.iterations, {"plan": self.plan.digest}
        turns, spans = course.turns // each, tuple(self.spans)
        trace = Trace(self.plan.name, self._rung, turns, spans, origin, iterations=each)
        write_whole(place / "trace.json", trace.to_json())
        write_whole(place / "plan.json", self.plan.to_json())
        self._result(course).save(place)

    @property
    def _rung(self) -> Any:
        return "measured" if self.testbed is None else "emulated"

    def _result(self, course: Course) -> Result:
        samples = self._samples(course)
        summary = self._summary(course, samples)
        return Result(
            rung=self._rung,
            paper=self.options.paper,
            table="elastic",
            scheme=self.plan.name,
            model=models.title(self.options.model),
            ranks=self.plan.ranks,
            settings={
                **recorded(self.options, self.testbed),
                "workers": len(workers(self.plan)),
                "masters": list(masters(self.plan)),
                "trained": kept(self.plan).buffer,
                "turns_an_epoch": self.turns_an_epoch,
                "plan": self.plan.digest,
                **({} if self.plan.iterations == 1 else {"period": self.plan.iterations}),
                **({} if self.before is None else {"before": self.before.digest, "before_name": self.before.name}),
                **self.plan.provenance,
            },
            provenance={
                **self.machines,
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                **self.device.provenance(),
            },
            summary=summary,
            samples=samples,
            conformance={**course.conformance, **{f"final_sha256_{seed}": sha for seed, sha in course.finals.items()}},
            notes=[
                *self.notes,
                *self._disturbances(summary["slowest_for_backward_seconds"]),
                *quiet.load_warnings(self.machines, "launch"),
            ],
        )

    def _disturbances(self, computing: float) -> Iterator[str]:
        """What made times longer than on cores of their own; `computing`: seconds of the slowest worker's passes."""
        crowded = self.plan.ranks > self.machines["cores"] and not self.device.queued
        kept = self.options.paced(computing)
        if crowded and not (kept and self.testbed is not None):
            yield f"{self.plan.ranks} ranks share {self.machines['cores']} cores"
        if self.options.compute_seconds is not None and not kept:
            yield (
                f"forward and backward of the slowest worker take {computing:.3g} s and were to take "
                f"{self.options.compute_seconds:g} s"
            )

    def _samples(self, course: Course) -> dict[str, list[float]]:
        """Repeats: of an iteration one per segment, of all else one per seed."""
        ends = course.ends()
        samples = {
            "iteration_seconds": [point[3] for point in course.points],
            "seconds": [seconds for seconds, _ in ends.values()],
        }
        errors = [1 - accuracy for _, accuracy in ends.values() if accuracy is not None]
        if errors:
            samples["error"] = errors
        for error in self.options.target_errors:
            first = course.reached(error)
            if len(first) == len(ends):
                samples[f"seconds_to_{error:g}"] = [first[seed][1] for seed in ends]
                samples[f"iterations_to_{error:g}"] = [float(first[seed][0]) for seed in ends]
            # one that does not get there counts with its whole run, which it takes at the least
            samples[f"seconds_least_to_{error:g}"] = [first[s][1] if s in first else ends[s][0] for s in ends]
        stale: dict[int, list[int]] = defaultdict(list)
        for seed, *_, staleness in course.arrivals:
            stale[seed].append(staleness)
        if stale:
            samples["staleness"] = [float(np.mean(values)) for values in stale.values()]
        samples |= self._parts(course)
        return samples

    def _parts(self, course: Course) -> dict[str, list[float]]:
        """Shares of a worker's time, and what comes before the iterations, one of each per seed."""
        number, turns = len(workers(self.plan)), course.last_turns()
        samples: dict[str, list[float]] = defaultdict(list)
        for seed, parts in course.parts.items():
            for name, share in _shares(parts).items():
                samples[name].append(share)
            samples["for_backward_seconds"].append(parts[breakdown.FOR_BACKWARD] / (number * turns[int(seed)]))
        samples["reading_seconds"], samples["initialisation_seconds"] = (
            list(each) for each in zip(*course.before, strict=True)
        )
        return samples

    def _summary(self, course: Course, samples: dict[str, list[float]]) -> dict[str, float]:
        longest = max(course.last_turns().values())
        summary: dict[str, float] = {"iterations": float(longest), "seeds": float(len(course.finals))}
        for key, values in samples.items():
            low, middle, high = median_interval(values)
            summary[key] = middle
            if low is not None and high is not None:
                summary |= {f"{key}_low": low, f"{key}_high": high}
        if "error" in summary:
            summary |= {"accuracy": 1 - summary["error"], "error_spread": float(np.std(samples["error"]))}
        summary["final_loss"] = course.points[-1][4]
        if course.again:
            summary |= {"runs": 1.0 + len(course.again), "distinct_results": float(len(course.distinct()))}
        summary["slowest_for_backward_seconds"] = course.slowest / sum(course.last_turns().values())
        if course.arrivals:
            summary["staleness_most"] = float(max(arrival[-1] for arrival in course.arrivals))
        if course.added:
            summary["lost_share"] = course.lost / course.added
        return summary | self._shares(course)

    def _shares(self, course: Course) -> dict[str, float]:
        """The parts of a worker's time: of the iterations of all seeds, and what comes before of all of it."""
        total = dict.fromkeys(breakdown.PARTS, 0.0)
        for parts in course.parts.values():
            total = {part: total[part] + value for part, value in parts.items()}
        turns = sum(course.last_turns().values())
        each = {"for_backward_seconds": total[breakdown.FOR_BACKWARD] / (len(workers(self.plan)) * turns)}
        reading, initialising = (sum(values) for values in zip(*course.before, strict=True))
        whole = reading + initialising + sum(seconds for seconds, _ in course.ends().values())
        return _shares(total) | each | {"io_share": reading / whole, "initialisation_share": initialising / whole}


def _shares(parts: dict[str, float]) -> dict[str, float]:
    """Of seconds of the parts, their shares, and that of all messages together."""
    total = sum(parts.values())
    shares = {f"{part}_share": value / total for part, value in parts.items()}
    return shares | {"comm_share": sum(shares[f"{part}_share"] for part in breakdown.MESSAGES)}
