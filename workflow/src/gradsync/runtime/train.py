"""Train a model under several plans and peers in turn, in one launch, so that they can be compared.

Each contender has a model, parameters and momentum of its own, all from the same seed and on the same samples.
Contenders take turns in blocks of iterations, A B C .. C B A, so that a slow moment of the machine falls on all of
them. Before that every plan is held against the oracle.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist

from gradsync.configuration.peers import Peer
from gradsync.configuration.training import Training
from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.plan.blocks import Blocks, borders_of_blocks
from gradsync.plan.phases import PhasedPlan
from gradsync.runtime import checkpoint, data, devices, memory, models, replay
from gradsync.runtime.checkpoint import Checkpoints
from gradsync.runtime.compute import Loss
from gradsync.runtime.conformance import Held, exactness
from gradsync.runtime.contenders import (
    NO_COMMUNICATION,
    ONE_RANK,
    Contender,
    NoCommunication,
    OneRank,
    Record,
    gathered,
)
from gradsync.runtime.data.cache import DataCache, opening
from gradsync.runtime.evaluate import evaluate
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.hosts import machines, misplaced, nodes
from gradsync.runtime.peers.stock import Stock
from gradsync.runtime.phased import Phased, executing
from gradsync.runtime.sessions import Session, Sessions
from gradsync.runtime.train_contenders import Contenders
from gradsync.runtime.train_results import Results, recorded
from gradsync.statistics import quiet

States = tuple[dict[str, Any], dict[str, Any]]
"""By contender: what all ranks hold alike, and this rank's own."""


@dataclass
class _Progress:
    """Where the launch is: what a checkpoint holds besides the contenders' own state."""

    seed: int = 0  # index into the seeds
    done: int = 0  # turns of that seed
    sentences: dict[str, Any] = field(default_factory=dict)  # of which translations are trained
    records: dict[str, Record] = field(default_factory=dict)
    conformance: dict[str, dict[str, Any]] = field(default_factory=dict)
    bucket_mib: float | None = None
    bleu_signature: str = ""  # of the library that scores translations
    sessions: list[Session] = field(default_factory=list)


def train(
    plans: Sequence[Plan | PhasedPlan],
    peers: list[Peer],
    options: Training,
    folder: Path,
    rank: int,
    ranks: int,
    testbed: dict[str, Any] | None = None,
) -> None:
    """Run in every rank; rank 0 writes results below the folder. `testbed` describes the one that the ranks run on.

    An interrupted run goes on from its last checkpoint. Raises RunError if a plan does not compute what the oracle
    says, a loss is not finite, or ranks end with different parameters.
    """
    _Launch(plans, peers, options, folder, rank, ranks, testbed).run()


class _Launch:
    def __init__(
        self,
        plans: Sequence[Plan | PhasedPlan],
        peers: list[Peer],
        options: Training,
        folder: Path,
        rank: int,
        ranks: int,
        testbed: dict[str, Any] | None,
    ):
        self.peers, self.options, self.folder = peers, options, folder
        self.plans = [plan for plan in plans if isinstance(plan, Plan)]
        self.phased = [plan for plan in plans if isinstance(plan, PhasedPlan)]
        # of which each is executed
        self.every = [*self.plans, *(part for phased in self.phased for part in phased.plans)]
        self.rank, self.ranks = rank, ranks
        machine, placed = machines(), nodes()
        wrong_places = {plan.name: misplaced(plan, placed) for plan in self.every}
        for name, notes in wrong_places.items():
            self._say(f"{name}: {'; '.join(notes)}" if notes else "")
        self.spec = models.get(options.model)
        smoothing = options.label_smoothing
        loss = cast(Loss, self.spec.loss)  # that of translations takes `smoothing`
        self.loss = loss if smoothing is None else partial(loss, smoothing=smoothing)
        self.device = devices.pick(options.device)
        self.device.refuse_precision(options.precision)
        self.groups = Groups(self.device)
        self.contenders = Contenders(
            *(self.plans, peers, options, self.loss, rank, self.device, self.groups, Pool(), self._say),
            phased=self.phased,
        )
        self.progress = _Progress()
        self.cache: DataCache | None = None
        wrong_places |= {
            each.name: [note for part in each.plans for note in wrong_places[part.name]] for each in self.phased
        }
        self.results = Results(plans, options, testbed, ranks, self.device, machine, wrong_places)
        settings = {**recorded(options, testbed), "peers": [peer.model_dump() for peer in peers]}
        launch = json.dumps([settings, [plan.name for plan in plans], torch.__version__], sort_keys=True)
        key = json.dumps([launch, ranks, [plan.digest for plan in plans]])
        self.checkpoints = Checkpoints(
            folder / "checkpoint",
            hashlib.sha256(key.encode()).hexdigest(),
            rank,
            options.checkpoint_seconds,
            hashlib.sha256(launch.encode()).hexdigest(),
        )

    def run(self) -> None:
        with opening.opened(self.options, self.rank) as self.cache:
            self._run()

    def _run(self) -> None:
        loaded = self.checkpoints.load()
        if loaded is not None:
            self.progress = _restored(loaded[0]["progress"])
            self.contenders.bucket_mib = self.progress.bucket_mib
            self._say(
                f"going on from the checkpoint at iteration {self.progress.done} of seed "
                f"{self.options.seeds[self.progress.seed]}"
            )
        self.sessions = Sessions({**self.results.machines, **self.device.provenance()}, self.progress.sessions)
        states = None if loaded is None else (loaded[0]["contenders"], loaded[1]["contenders"])
        for index in range(self.progress.seed, len(self.options.seeds)):
            self.progress.seed = index
            self._train_seed(self.options.seeds[index], states)
            states = None
            self.progress.done = 0
        self.groups.close()
        self.results.cached = opening.counted(self.cache)
        host_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        self.results.notes += self.sessions.notes()
        self.results.machines |= self.sessions.provenance()
        if self.progress.bleu_signature:
            self.results.machines["bleu"] = self.progress.bleu_signature
        self._say("; ".join(quiet.load_warnings(self.results.machines, "warning: launch")))
        peak_bytes = torch.tensor([host_bytes, self.device.peak_bytes() or 0.0], dtype=torch.float64)
        dist.all_reduce(peak_bytes, op=dist.ReduceOp.MAX)
        if self.rank == 0:
            keys = ("launch_peak_memory_bytes", "launch_peak_device_memory_bytes")
            self.results.peak_bytes = {k: peak for k, peak in zip(keys, peak_bytes.tolist(), strict=True) if peak}
            self.results.records, self.results.conformance = self.progress.records, self.progress.conformance
            self.results.save(self.folder, self._data(self.options.seeds[0]))
        self.checkpoints.clear()

    def _say(self, text: str) -> None:
        if self.rank == 0 and text:
            print(text, file=sys.stderr, flush=True)

    def _data(self, seed: int) -> data.Stages:
        return data.load_stages(self.options, self.ranks, seed, self.cache)

    # One seed

    def _train_seed(self, seed: int, states: States | None) -> None:
        """Train every contender with one seed."""
        loaded = self._data(seed)
        self._note_text(loaded.parts[0].training)
        self.contenders.rate = self.options.learning_rate(loaded.turns, loaded.first)
        borders = borders_of_blocks(loaded.first, loaded.turns, self.options.block)
        self.contenders.switches = {
            phased.name: phased.switches(loaded.turns_after(phased.shares), borders) for phased in self.phased
        }
        with data.StagedFeed(loaded, self.rank, device=self.device) as feed:
            first = models.build(self.options.model, seed)
            self._refuse_memory(first)
            if self.options.conformance and not self.progress.conformance:
                self._hold_against_oracle(first, loaded.parts[0], seed)
            contenders = list(self.contenders.of_seed(first, feed, seed))
            self.progress.bucket_mib = self.contenders.bucket_mib
            for contender in contenders:
                if states is not None:
                    contender.restore(states[0][contender.name], states[1][contender.name])
            blocks = Blocks(borders, (turn for each in self.contenders.switches.values() for turn in each))
            self._train_blocks(contenders, loaded, seed, feed, blocks)
            self._finish_seed(contenders)

    def _note_text(self, training: data.Samples) -> None:
        """Note which text it is; raises InputError if a run that goes on had other sentences."""
        if isinstance(training, data.Sentences):
            self.progress.sentences = training.same(self.progress.sentences, self.checkpoints.folder)
            self.results.notes = [data.translation.NOTE] if training.generated else []
            self.results.text_sha256 = self.progress.sentences["sha256"]
        elif isinstance(training, data.MaskedPairs) and self.options.data == data.text.NAME:
            self.results.text_sha256 = training.sha256

    def _refuse_memory(self, first: torch.nn.Module) -> None:
        """Raises InputError if the launch needs more memory than there is; says so if checkpoints do not fit."""
        parameters = sum(parameter.numel() for parameter in first.parameters())
        kept = len(self.contenders.optimizer.kept)
        need = memory.needed(
            parameters,
            self.every,
            sum(memory.of_peer(peer.kind, self.ranks, kept) for peer in self.peers),
            references=self.options.references,
            conformance=0 if self.progress.conformance else self.options.conformance,
            width=exactness(first, self.every).itemsize,
        )
        memory.refuse(self.options.model, need, self.rank, self.device)
        copies = (1 + kept) * (len(self.plans) + len(self.phased) + len(self.peers))
        self._say(checkpoint.room(self.checkpoints.folder, parameters, copies))

    def _hold_against_oracle(self, first: torch.nn.Module, loaded: data.Data, seed: int) -> None:
        hurried = replay.without_waiting(first)
        turns = self.options.conformance
        held = Held(loaded, hurried, self.loss, seed, self.rank, self.groups, turns, self.every, self.contenders.rate)
        different = {plan.digest: plan for plan in self.every}
        verdicts: dict[str, dict[str, Any]] = {}
        for number, (digest, plan) in enumerate(different.items(), 1):
            self._say(f"conformance {number}/{len(different)}: {plan.name}")
            verdicts[digest] = held.against_oracle(plan)
        self.progress.conformance |= {plan.name: verdicts[plan.digest] for plan in self.plans}
        for phased in self.phased:  # that of the phase which is off the most
            of_phases = [verdicts[plan.digest] for plan in phased.plans]
            self.progress.conformance[phased.name] = dict(max(of_phases, key=lambda each: each["oracle_difference"]))

    def _train_blocks(
        self, contenders: list[Contender], loaded: data.Stages, seed: int, feed: data.StagedFeed, blocks: Blocks
    ) -> None:
        options, total = self.options, blocks.turns
        begun, start = self.progress.done, time.monotonic()
        reported = 0.0
        while self.progress.done < total and not self._reached(seed):
            first = self.progress.done
            turns, number = blocks.end(first) - first, blocks.number(first)
            ends_epoch = int(loaded.epochs_after(first + turns)) > int(loaded.epochs_after(first))
            test = loaded.parts[loaded.number(first + turns - 1)].test
            for contender in contenders if number % 2 == 0 else contenders[::-1]:
                self._train_block(contender, seed, first, turns, feed)
                if ends_epoch:
                    self._evaluate(contender, test, seed, first + turns - 1)
            self.progress.done = first + turns
            if time.monotonic() - reported > 1 or self.progress.done == total:
                reported = time.monotonic()
                left = (reported - start) / (self.progress.done - begun) * (total - self.progress.done)
                loss = np.mean([contender.losses[-1] for contender in contenders])
                self._say(
                    f"seed {seed}, iteration {self.progress.done}/{total} of {len(contenders)} contenders, "
                    f"loss {loss:.4f}, {left:.0f} s left"
                )
            # none if all is trained: a run that goes on has a block to run, whose traces are kept
            trained = self.progress.done == total or self._reached(seed)
            through = trained and self.progress.seed == len(options.seeds) - 1
            if not through and self.checkpoints.due():
                self._checkpoint(contenders)

    def _reached(self, seed: int) -> bool:
        """Whether every contender that is evaluated has reached the target accuracy; all ranks get the same answer."""
        if self.options.target_accuracy is None:
            return False
        best = [
            max((accuracy for each, _, accuracy in record.accuracy if each == seed), default=0.0)
            for name, record in self.progress.records.items()
            if name not in (NO_COMMUNICATION, ONE_RANK)
        ]
        flag = torch.tensor([bool(best) and min(best) >= self.options.target_accuracy], dtype=torch.uint8)
        dist.broadcast(flag, 0)
        return bool(flag)

    def _train_block(self, contender: Contender, seed: int, first: int, turns: int, feed: data.StagedFeed) -> None:
        seen = len(contender.losses)
        feed.taken_seconds()  # of what others have read
        ends = contender.run(turns)
        reading = feed.taken_seconds()
        trace = None
        if planned := executing(contender):
            trace = gathered(planned.plan, planned.trace(), self.rank, turns)
            self.results.traces[contender.name] = trace
        if self.rank != 0:
            return
        record = self.progress.records.setdefault(contender.name, Record())
        record.block(seed, first, contender.losses[seen:], ends, trace)
        if isinstance(contender, Phased):
            record.phases.append(contender.number)
            record.switches += [(seed, turn, seconds) for turn, seconds in contender.taken()]
        if reading is not None:
            record.reading.append(reading)
        if isinstance(contender.model, replay.Replayed):
            record.absorbed.append(contender.model.absorbed_seconds() / turns)

    def _evaluate(self, contender: Contender, test: data.Samples | None, seed: int, turn: int) -> None:
        """Record the accuracy of what trains, and BLEU of translations, on rank 0. Collective."""
        if isinstance(contender, NoCommunication | OneRank) or test is None:
            return
        evaluated = evaluate(contender.whole(), test, self.spec, self.options.batch)
        if self.rank != 0:
            return
        record = self.progress.records[contender.name]
        record.accuracy.append((seed, turn, evaluated.accuracy))
        if evaluated.bleu is not None:
            score, self.progress.bleu_signature = evaluated.bleu
            record.bleu.append((seed, turn, score))

    def _checkpoint(self, contenders: list[Contender]) -> None:
        states = {contender.name: contender.state() for contender in contenders}
        self.progress.sessions = self.sessions.so_far()
        self.checkpoints.save(
            {
                "progress": asdict(self.progress),
                "contenders": {name: alike for name, (alike, _) in states.items()},
            },
            {"contenders": {name: own for name, (_, own) in states.items()}},
        )

    def _finish_seed(self, contenders: list[Contender]) -> None:
        """Record what is known once a seed is through; the traces of the last one are kept."""
        reference: dict[str, torch.Tensor] = {}
        for contender in contenders:
            conformance = self.progress.conformance.setdefault(contender.name, {})
            if isinstance(contender, NoCommunication | OneRank):
                conformance["trains"] = "each rank for itself: nothing is sent"
            else:
                conformance |= self._same_on_all_ranks(contender)
                reference = reference or contender.parameters()
                conformance["difference_to_first"] = max(
                    float((parameter - reference[name]).abs().max())
                    for name, parameter in contender.parameters().items()
                )
            if planned := executing(contender):
                self.results.details[contender.name] = {
                    "plan": planned.plan.digest,
                    **planned.plan.provenance,
                    "held_bytes": planned.held_bytes("parameter", "momentum"),
                    "state_bytes": planned.held_bytes("momentum"),
                }
                if isinstance(contender, Phased):
                    self.results.details[contender.name] |= contender.details()
                if name := planned.plan.holding("scaler"):
                    scaler = planned.executor.buffers[name]
                    conformance |= {"loss_scale": float(scaler[0]), "skipped_steps": int(scaler[2])}
            elif isinstance(contender, Stock):
                self.results.details[contender.name] = {
                    **contender.peer.settings(),
                    **contender.details(),
                    "held_bytes": contender.held_bytes(),
                }
        for contender in contenders:
            contender.close()

    def _same_on_all_ranks(self, contender: Contender) -> dict[str, Any]:
        """The digest of a contender's parameters; raises RunError if ranks have different ones. Collective."""
        digest = hashlib.sha256()
        for name, parameter in sorted(contender.parameters().items()):
            digest.update(name.encode())
            digest.update(parameter.contiguous().cpu().numpy().tobytes())
        digests: list[str] = [""] * self.ranks
        dist.all_gather_object(digests, digest.hexdigest())
        if len(set(digests)) > 1:
            raise RunError(f"{contender.name!r}: ranks ended with different parameters")
        return {"parameters_sha256": digests[0]}


def _restored(progress: dict[str, Any]) -> _Progress:
    records = {name: Record(**record) for name, record in progress["records"].items()}
    return _Progress(**{**progress, "records": records})
