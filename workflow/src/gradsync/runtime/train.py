"""Train a model under several plans and stock DDP in turn, in one launch, so that they can be compared.

Each contender has a model, parameters and momentum of its own, all from the same seed and on the same samples.
Contenders take turns in blocks of iterations, A B C .. C B A, so that a slow moment of the machine falls on all of
them. Before that every plan is held against the oracle.
"""

from __future__ import annotations

import copy
import hashlib
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync.configuration.peers import Peer
from gradsync.errors import RunError
from gradsync.files.results import Result, write_whole
from gradsync.plan import Local, Plan
from gradsync.plan.trace import Trace
from gradsync.runtime import checkpoint, data, devices, memory, models, replay
from gradsync.runtime.checkpoint import Checkpoints
from gradsync.runtime.compute import Forward
from gradsync.runtime.conformance import Held, exactness
from gradsync.runtime.contenders import (
    Contender,
    NoCommunication,
    OneRank,
    Planned,
    Record,
    gathered,
    saved,
    silent,
)
from gradsync.runtime.ddp import StockDDP, best_bucket_mib
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.hosts import machines, misplaced, nodes
from gradsync.runtime.other_work import OtherWork
from gradsync.runtime.repeats import repeats
from gradsync.statistics import quiet
from gradsync.statistics.intervals import median_interval

UNTOLD = ("checkpoint_seconds", "reference", "paper")  # options that change no number


@dataclass(frozen=True)
class Options:
    """What to train; see the configuration. `iterations` (0: whole epochs) ends each seed's training early."""

    model: str
    data: str
    batch: int
    epochs: int
    block: int
    seeds: tuple[int, ...] = (0,)
    size: int | None = None
    data_folder: str | None = None
    iterations: int = 0
    precision: str = "float32"
    statistics: bool = True
    references: bool = True
    conformance: int = 3  # turns that every plan is held against the oracle; 0: none
    checkpoint_seconds: float = 120.0
    reference: str = "wfbp"
    lr: float = 0.02  # of peers that have no plan beside them: else all train with the rates of the first plan
    momentum: float = 0.9
    accumulate: int = 1  # micro-batches of `batch` samples a rank and turn; the plans have as many
    clip_norm: float | None = None  # of the mean gradient; that of the plans
    device: str = devices.CPU
    paper: str = ""  # whose tables show the runs
    testbed: dict[str, Any] | None = None  # what ranks on hosts of a testbed are told of it


@dataclass
class _Progress:
    """Where the launch is: what a checkpoint holds besides the contenders' own state."""

    seed: int = 0  # index into the seeds
    done: int = 0  # turns of that seed
    records: dict[str, Record] = field(default_factory=dict)
    conformance: dict[str, dict[str, Any]] = field(default_factory=dict)
    bucket_mib: float | None = None


def train(plans: list[Plan], peers: list[Peer], options: Options, folder: Path, rank: int, ranks: int) -> None:
    """Run in every rank; rank 0 writes `folder/<contender>/{result.json, metrics.csv, trace.json, plan.json}`.

    An interrupted run goes on from its last checkpoint. Raises RunError where a plan does not compute what the oracle
    says, a loss is not finite, or ranks end with different parameters.
    """
    _Launch(plans, peers, options, folder, rank, ranks).run()


class _Launch:
    def __init__(self, plans: list[Plan], peers: list[Peer], options: Options, folder: Path, rank: int, ranks: int):
        self.plans, self.peers, self.options, self.folder = plans, peers, options, folder
        self.rank, self.ranks = rank, ranks
        self.machines, placed = machines(), nodes()
        self.misplaced = {plan.name: misplaced(plan, placed) for plan in plans}
        for name, said in self.misplaced.items():
            self._say(f"{name}: {'; '.join(said)}" if said else "")
        self.spec = models.get(options.model)
        self.device = devices.pick(options.device)
        self.device.refuse_precision(options.precision)
        self.groups, self.pool = Groups(self.device), Pool()
        self.progress = _Progress()
        settings = {**asdict(options), "ranks": ranks, "peers": [peer.model_dump() for peer in peers]}
        settings = {key: value for key, value in settings.items() if key not in UNTOLD}
        key = json.dumps([settings, [plan.digest for plan in plans], torch.__version__], sort_keys=True)
        self.checkpoints = Checkpoints(
            folder / "checkpoint", hashlib.sha256(key.encode()).hexdigest(), rank, options.checkpoint_seconds
        )
        self.traces: dict[str, Trace] = {}
        self.details: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        others = OtherWork()
        loaded = self.checkpoints.load()
        if loaded is not None:
            self.progress = _restored(loaded[0]["progress"])
            self._say(
                f"going on from the checkpoint at iteration {self.progress.done} of seed "
                f"{self.options.seeds[self.progress.seed]}"
            )
        states = None if loaded is None else (loaded[0]["contenders"], loaded[1]["contenders"])
        for index in range(self.progress.seed, len(self.options.seeds)):
            self.progress.seed = index
            self._seed(self.options.seeds[index], states)
            states = None
            self.progress.done = 0
        self.groups.close()
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        self.machines |= others.share()
        self._say("; ".join(quiet.load_warnings(self.machines, "warning: launch")))
        memory = torch.tensor([host, self.device.peak_bytes() or 0.0], dtype=torch.float64)
        dist.all_reduce(memory, op=dist.ReduceOp.MAX)
        if self.rank == 0:
            peaks = dict(
                zip(("launch_peak_memory_bytes", "launch_peak_device_memory_bytes"), memory.tolist(), strict=True)
            )
            self._save({key: value for key, value in peaks.items() if value})
        self.checkpoints.clear()

    def _say(self, text: str) -> None:
        if self.rank == 0 and text:
            print(text, file=sys.stderr, flush=True)

    def _data(self, seed: int) -> data.Data:
        return data.load(
            self.options.data,
            model=self.options.model,
            size=self.options.size,
            batch=self.options.batch,
            ranks=self.ranks,
            seed=seed,
            folder=self.options.data_folder,
            accumulate=self.options.accumulate,
        )

    # Contenders

    def _seed(self, seed: int, states: tuple[dict[str, Any], dict[str, Any]] | None) -> None:
        """Train everything with one seed."""
        loaded = self._data(seed)
        with data.Feed(loaded, self.rank, device=self.device) as feed:
            first = models.build(self.options.model, seed)
            self._look_for_room(first)
            if self.options.conformance and not self.progress.conformance:
                hurried = replay.without_waiting(first)
                held = Held(loaded, hurried, self.spec.loss, seed, self.rank, self.groups, self.options.conformance)
                for number, plan in enumerate(self.plans, 1):
                    self._say(f"conformance {number}/{len(self.plans)}: {plan.name}")
                    self.progress.conformance[plan.name] = held.against_oracle(plan)
                del held  # its models and gradients
            contenders = list(self._contenders(first, feed, seed))
            for contender in contenders:
                if states is not None:
                    contender.restore(states[0][contender.name], states[1][contender.name])
            self._train(contenders, loaded, seed)
            self._finish(contenders)

    def _look_for_room(self, first: torch.nn.Module) -> None:
        parameters = sum(parameter.numel() for parameter in first.parameters())
        need = memory.needed(
            parameters,
            self.plans,
            len(self.peers),
            references=self.options.references,
            conformance=0 if self.progress.conformance else self.options.conformance,
            width=exactness(first).itemsize,
        )
        memory.refuse(self.options.model, need, self.rank, self.device)
        kept = (2 if self._rates()["momentum"] else 1) * (len(self.plans) + len(self.peers))
        self._say(checkpoint.room(self.checkpoints.folder, parameters, kept))

    def _contenders(self, first: torch.nn.Module, feed: data.Feed, seed: int) -> Iterator[Contender]:
        def forward() -> Forward:
            model = copy.deepcopy(first).to(self.device.torch_device)
            return Forward(model, self.spec.loss, self.rank, seed, self.options.precision)

        for plan in self.plans:
            yield Planned(plan, forward(), feed, self.groups, self.pool)
        by_name = {plan.name: plan for plan in self.plans}
        for peer in self.peers:
            yield StockDDP(self._sized(peer, first, feed, seed), forward(), feed, by_name, self.groups, **self._rates())
        if self.options.references and self.plans:
            reference = by_name.get(self.options.reference, self.plans[0])
            alone = NoCommunication(silent(reference), forward(), feed, self.groups, self.pool)
            yield alone
            yield OneRank(alone)

    def _rates(self) -> dict[str, Any]:
        rates = {"lr": self.options.lr, "momentum": self.options.momentum}
        for op in self.plans[0].roles[0].flat if self.plans else ():
            if isinstance(op, Local) and "lr" in op.arguments:
                rates = {key: op.arguments[key] for key in rates}
        same = {key: getattr(self.options, key) for key in ("statistics", "accumulate", "clip_norm")}
        return {**rates, **same}

    def _sized(self, peer: Peer, first: torch.nn.Module, feed: data.Feed, seed: int) -> Peer:
        """The peer with a size for its buckets; the best one is looked for once a launch."""
        if peer.bucket_mib != "best":
            return peer
        if self.progress.bucket_mib is None:

            def make(model: torch.nn.Module, size: float) -> StockDDP:
                tried = peer.model_copy(update={"bucket_mib": size})
                model = model.to(self.device.torch_device)
                forward = Forward(model, self.spec.loss, self.rank, seed, self.options.precision)
                return StockDDP(tried, forward, feed, {}, self.groups, **self._rates())

            self.progress.bucket_mib = best_bucket_mib(first, make, steady=replay.is_replay(self.options.model))
            self._say(f"{peer.name}: buckets of {self.progress.bucket_mib:g} MiB are the fastest")
        return peer.model_copy(update={"bucket_mib": self.progress.bucket_mib})

    # Training

    def _train(self, contenders: list[Contender], loaded: data.Data, seed: int) -> None:
        options, an_epoch = self.options, loaded.batches.turns_an_epoch // self.options.accumulate
        total = min(an_epoch * options.epochs, options.iterations or sys.maxsize)
        begun, start = self.progress.done, time.monotonic()
        said = 0.0
        while total - self.progress.done >= 2:  # of one turn alone nothing could be timed
            first = self.progress.done
            turns = min(options.block, total - first)
            number = first // options.block
            for contender in contenders if number % 2 == 0 else contenders[::-1]:
                self._block(contender, seed, first, turns)
                ends_epoch = (first + turns) // an_epoch > first // an_epoch
                trains = not isinstance(contender, NoCommunication | OneRank)
                if ends_epoch and trains and loaded.test is not None:
                    if self.rank == 0:
                        reached = data.accuracy(contender.model, loaded.test, spec=self.spec)
                        self.progress.records[contender.name].accuracy.append((seed, first + turns - 1, reached))
                    dist.barrier()  # the others wait here, where they may, and not in their next message
            self.progress.done = first + turns
            if time.monotonic() - said > 1 or total - self.progress.done < 2:
                said = time.monotonic()
                left = (said - start) / (self.progress.done - begun) * (total - self.progress.done)
                loss = np.mean([contender.losses[-1] for contender in contenders])
                self._say(
                    f"seed {seed}, iteration {self.progress.done}/{total} of {len(contenders)} contenders, "
                    f"loss {loss:.4f}, {left:.0f} s left"
                )
            # none where all is trained: who goes on has a block to run, whose traces are kept
            through = total - self.progress.done < 2 and self.progress.seed == len(options.seeds) - 1
            if not through and self.checkpoints.due():
                self._checkpoint(contenders)

    def _block(self, contender: Contender, seed: int, first: int, turns: int) -> None:
        seen = len(contender.losses)
        ends = contender.run(turns)
        trace = None
        if isinstance(contender, Planned):
            trace = self.traces[contender.name] = gathered(contender.plan, contender.trace(), self.rank, turns)
        if self.rank != 0:
            return
        record = self.progress.records.setdefault(contender.name, Record())
        record.block(seed, first, contender.losses[seen:], ends, trace)
        if isinstance(contender.model, replay.Replayed):
            record.absorbed.append(contender.model.absorbed_seconds() / turns)

    def _checkpoint(self, contenders: list[Contender]) -> None:
        states = {contender.name: contender.state() for contender in contenders}
        self.checkpoints.save(
            {
                "progress": asdict(self.progress),
                "contenders": {name: alike for name, (alike, _) in states.items()},
            },
            {"contenders": {name: own for name, (_, own) in states.items()}},
        )

    def _finish(self, contenders: list[Contender]) -> None:
        """What is known once a seed is through; the last one's traces are kept."""
        reference: dict[str, torch.Tensor] = {}
        for contender in contenders:
            told = self.progress.conformance.setdefault(contender.name, {})
            if isinstance(contender, NoCommunication | OneRank):
                told["trains"] = "each rank for itself: nothing is sent"
            else:
                told |= self._same_on_all_ranks(contender)
                reference = reference or contender.parameters()
                told["difference_to_first"] = max(
                    float((parameter - reference[name]).abs().max())
                    for name, parameter in contender.parameters().items()
                )
            if isinstance(contender, Planned):
                self.details[contender.name] = {
                    "plan": contender.plan.digest,
                    **contender.plan.provenance,
                }
                if name := contender.plan.holding("scaler"):
                    scaler = contender.executor.buffers[name]
                    told |= {"loss_scale": float(scaler[0]), "skipped_steps": int(scaler[2])}
            elif isinstance(contender, StockDDP):
                self.details[contender.name] = {
                    **contender.peer.model_dump(exclude={"name", "label"}),
                    "bucket_bytes": contender.buckets(),
                }
        for contender in contenders:
            contender.close()

    def _same_on_all_ranks(self, contender: Contender) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, parameter in sorted(contender.parameters().items()):
            digest.update(name.encode())
            digest.update(parameter.contiguous().cpu().numpy().tobytes())
        digests: list[str] = [""] * self.ranks
        dist.all_gather_object(digests, digest.hexdigest())
        if len(set(digests)) > 1:
            raise RunError(f"{contender.name!r}: ranks ended with different parameters")
        return {"parameters_sha256": digests[0]}

    # Results

    def _save(self, memory: dict[str, float]) -> None:
        records = self.progress.records
        names = list(records)
        reference = self.options.reference if self.options.reference in records else names[0]
        for name in names:
            result = self._result(name, reference, memory)
            folder = self.folder / name
            write_whole(folder / "metrics.csv", records[name].csv(self._turns_an_epoch()))
            if name in self.traces:
                write_whole(folder / "trace.json", saved(self.traces[name]).to_json())
            for plan in self.plans:
                if plan.name == name:
                    write_whole(folder / "plan.json", plan.to_json())
            result.save(folder)
        write_whole(self.folder / "schemes.json", json.dumps(names) + "\n")

    def _turns_an_epoch(self) -> int:
        return self._data(self.options.seeds[0]).batches.turns_an_epoch // self.options.accumulate

    def _result(self, name: str, reference: str, memory: dict[str, float]) -> Result:
        records, options = self.progress.records, self.options
        record = records[name]
        samples = repeats(records, name, self.ranks)
        ratio = np.array(record.blocks) / np.array(records[reference].blocks)
        summary: dict[str, float] = {}
        for key, values in {**samples, f"ratio_to_{reference}": ratio}.items():
            summary |= _with_interval(key, values)
        if record.absorbed:
            summary["absorbed_host_seconds"] = float(np.median(record.absorbed))
        summary |= {"pairs": float(len(record.blocks)), "seeds": float(len(options.seeds))}
        last = {seed: accuracy for seed, _, accuracy in record.accuracy}
        if last:
            accuracy = np.array(list(last.values()))
            summary |= {
                "accuracy": float(np.median(accuracy)),
                "accuracy_least": float(accuracy.min()),  # the range over seeds is no interval
                "accuracy_most": float(accuracy.max()),
            }
        summary["final_loss"] = record.rows[-1][3]
        summary |= memory
        for plan in self.plans:
            if plan.name == name:
                summary["messages"] = float(len(plan.messages()))
        if name in self.details and "bucket_bytes" in self.details[name]:
            summary["messages"] = float(len(self.details[name]["bucket_bytes"]))
        cores = self.machines["cores"]
        return Result(
            rung="measured" if options.testbed is None else "emulated",
            paper=options.paper,
            table="training",
            scheme=name,
            model=models.title(options.model),
            ranks=self.ranks,
            settings={
                **{key: value for key, value in asdict(options).items() if key not in UNTOLD},
                **self.details.get(name, {}),
            },
            provenance={
                **self.machines,
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                **self.device.provenance(),
            },
            summary=summary,
            samples=samples,
            conformance=self.progress.conformance[name],
            notes=[
                *self._computed(cores),
                *self.misplaced.get(name, []),
                *quiet.load_warnings(self.machines, "launch"),
            ],
        )

    def _computed(self, cores: int) -> list[str]:
        """What to say of the computation."""
        if replay.is_replay(self.options.model):
            return [f"computation replayed: {self.ranks} ranks wait as long as it took"]
        if self.ranks <= cores or self.device.queued:
            return []
        return [f"{self.ranks} ranks share {cores} cores"]


def _restored(progress: dict[str, Any]) -> _Progress:
    records = {name: Record(**record) for name, record in progress["records"].items()}
    return _Progress(**{**progress, "records": records})


def _with_interval(key: str, values: Any) -> dict[str, float]:
    """The median; and the interval, where there are blocks enough for one."""
    low, middle, high = median_interval(values)
    return {key: middle, **({} if low is None or high is None else {f"{key}_low": low, f"{key}_high": high})}
