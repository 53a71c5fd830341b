"""What rank 0 writes of a launch: `<contender>/{result.json, metrics.csv, trace.json, plan.json}`, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradsync.configuration.training import Training
from gradsync.files.results import Result, write_contenders, write_whole
from gradsync.plan import Plan
from gradsync.plan.phases import PhasedPlan
from gradsync.plan.trace import Trace
from gradsync.runtime import models, replay
from gradsync.runtime.contenders import Record, saved
from gradsync.runtime.data.stages import Stages
from gradsync.runtime.devices import Device
from gradsync.runtime.models import own
from gradsync.runtime.models.language import SMOOTHING
from gradsync.runtime.repeats import of_phases, repeats, to_accuracy
from gradsync.statistics import quiet
from gradsync.statistics.intervals import median_interval

CACHED = ("data_cache_memory", "data_cache_folder", "data_cache_disk")
UNRECORDED = ("checkpoint_seconds", "reference", "paper", *CACHED)  # options that change no number


def recorded(options: Training, testbed: dict[str, Any] | None) -> dict[str, Any]:
    """The settings that results and checkpoints hold: options that a number may depend on, and the testbed.

    What translations are trained with is there, also if nobody says it: null is of models whose labels nothing spreads.
    A model of one's own is told by its text, too.
    """
    settings = {key: value for key, value in asdict(options).items() if key not in UNRECORDED}
    if options.label_smoothing is None and models.get(options.model).takes == models.TRANSLATIONS:
        settings["label_smoothing"] = SMOOTHING
    if own.is_own(options.model):
        settings["model_sha256"] = own.digest(options.model)
    return {**settings, "statistics": options.statistics == "broadcast", "testbed": testbed}


@dataclass
class Results:
    """All that results are made of, on rank 0."""

    plans: Sequence[Plan | PhasedPlan]
    options: Training
    testbed: dict[str, Any] | None  # that the ranks ran on
    ranks: int
    device: Device
    machines: dict[str, Any]
    misplaced: dict[str, list[str]]  # by plan: ranks that are not where its topology has them
    records: dict[str, Record] = field(default_factory=dict)
    conformance: dict[str, dict[str, Any]] = field(default_factory=dict)
    traces: dict[str, Trace] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)  # what settings tell of a contender alone
    peak_bytes: dict[str, float] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)  # what the data cache has counted in the launch
    notes: list[str] = field(default_factory=list)  # what is to be said of the data
    text_sha256: str = ""  # of text that is trained on

    def save(self, folder: Path, stages: Stages) -> None:
        """Write all of them below the folder; `stages` tell the epoch of a turn."""
        contenders = list(self.records)
        reference = self.options.reference if self.options.reference in contenders else contenders[0]
        for name in contenders:
            result = self._result(name, reference)
            write_whole(
                folder / name / "metrics.csv", self.records[name].csv(lambda turn: int(stages.epochs_after(turn)))
            )
            if name in self.traces:
                write_whole(folder / name / "trace.json", saved(self.traces[name]).to_json())
            for plan in self.plans:
                if plan.name == name:
                    write_whole(folder / name / "plan.json", plan.to_json())
            result.save(folder / name)
        write_contenders(folder, contenders)

    def _result(self, name: str, reference: str) -> Result:
        samples = repeats(self.records, name, self.ranks)
        return Result(
            rung="measured" if self.testbed is None else "emulated",
            paper=self.options.paper,
            table="training",
            scheme=name,
            model=models.title(self.options.model),
            ranks=self.ranks,
            settings=recorded(self.options, self.testbed)
            | ({"text_sha256": self.text_sha256} if self.text_sha256 else {})
            | self.details.get(name, {}),
            provenance={
                **self.machines,
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                **self.device.provenance(),
            },
            summary=self._summary(name, reference, samples),
            samples=samples,
            conformance=self.conformance[name],
            notes=[
                *self.notes,
                *self._notes_of_computation(),
                *self.misplaced.get(name, []),
                *quiet.load_warnings(self.machines, "launch"),
            ],
        )

    def _summary(self, name: str, reference: str, samples: dict[str, list[float]]) -> dict[str, float]:
        record = self.records[name]
        ratio = np.array(record.blocks) / np.array(self.records[reference].blocks)
        summary: dict[str, float] = {}
        for key, values in {**samples, f"ratio_to_{reference}": ratio}.items():
            summary |= _with_interval(key, values)
        if record.phases:
            summary |= of_phases(record)
        if record.absorbed:
            summary["absorbed_host_seconds"] = float(np.median(record.absorbed))
        summary |= {"pairs": float(len(record.blocks)), "seeds": float(len(self.options.seeds))}
        for key, evaluated in (("accuracy", record.accuracy), ("bleu", record.bleu)):
            last = np.array(list({seed: value for seed, _, value in evaluated}.values()))
            if len(last):
                summary |= {
                    key: float(np.median(last)),
                    f"{key}_least": float(last.min()),  # the range over seeds is no interval
                    f"{key}_most": float(last.max()),
                }
        if self.options.target_accuracy is not None:
            summary |= to_accuracy(record, self.options.target_accuracy)
        summary["final_loss"] = record.rows[-1][3]
        summary |= self.peak_bytes | self.cached
        for plan in self.plans:
            if plan.name == name and isinstance(plan, Plan):
                summary["messages"] = float(len(plan.messages()))
        buckets = self.details.get(name, {}).get("bucket_bytes")
        if buckets is not None:
            summary["messages"] = float(len(buckets))
        return summary

    def _notes_of_computation(self) -> list[str]:
        if replay.is_replay(self.options.model):
            return [f"computation replayed: {self.ranks} ranks wait as long as it took"]
        cores = self.machines["cores"]
        if self.ranks <= cores or self.device.queued:
            return []
        return [f"{self.ranks} ranks share {cores} cores"]


def _with_interval(key: str, values: Any) -> dict[str, float]:
    """The median; and the interval, if there are blocks enough for one."""
    low, middle, high = median_interval(values)
    return {key: middle, **({} if low is None or high is None else {f"{key}_low": low, f"{key}_high": high})}
