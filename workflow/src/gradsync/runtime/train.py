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
from gradsync.runtime import checkpoint, data, devices, memory, models, replay
from gradsync.runtime.checkpoint import Checkpoints
from gradsync.runtime.compute import Loss
from gradsync.runtime.conformance import Held, exactness
from gradsync.runtime.contenders import Contender, NoCommunication, OneRank, Planned, Record, gathered
from gradsync.runtime.data.cache import DataCache, opening
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.hosts import machines, misplaced, nodes
from gradsync.runtime.other_work import OtherWork
from gradsync.runtime.peers.stock import Stock
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


def train(
    plans: list[Plan],
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
        plans: list[Plan],
        peers: list[Peer],
        options: Training,
        folder: Path,
        rank: int,
        ranks: int,
        testbed: dict[str, Any] | None,
    ):
        self.plans, self.peers, self.options, self.folder = plans, peers, options, folder
        self.rank, self.ranks = rank, ranks
        machine, placed = machines(), nodes()
        wrong_places = {plan.name: misplaced(plan, placed) for plan in plans}
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
            plans, peers, options, self.loss, rank, self.device, self.groups, Pool(), self._say
        )
        self.progress = _Progress()
        self.cache: DataCache | None = None
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
        other_work = OtherWork()
        loaded = self.checkpoints.load()
        if loaded is not None:
            self.progress = _restored(loaded[0]["progress"])
            self.contenders.bucket_mib = self.progress.bucket_mib
            self._say(
                f"going on from the checkpoint at iteration {self.progress.done} of seed "
                f"{self.options.seeds[self.progress.seed]}"
            )
        states = None if loaded is None else (loaded[0]["contenders"], loaded[1]["contenders"])
        for index in range(self.progress.seed, len(self.options.seeds)):
            self.progress.seed = index
            self._train_seed(self.options.seeds[index], states)
            states = None
            self.progress.done = 0
        self.groups.close()
        self.results.cached = opening.counted(self.cache)
        host_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        self.results.machines |= other_work.share()
        self._say("; ".join(quiet.load_warnings(self.results.machines, "warning: launch")))
        peak_bytes = torch.tensor([host_bytes, self.device.peak_bytes() or 0.0], dtype=torch.float64)
        dist.all_reduce(peak_bytes, op=dist.ReduceOp.MAX)
        if self.rank == 0:
            keys = ("launch_peak_memory_bytes", "launch_peak_device_memory_bytes")
            self.results.peak_bytes = {k: peak for k, peak in zip(keys, peak_bytes.tolist(), strict=True) if peak}
            self.results.records, self.results.conformance = self.progress.records, self.progress.conformance
            batches = self._data(self.options.seeds[0]).batches
            self.results.save(self.folder, batches.turns_an_epoch // self.options.accumulate)
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
            cache=self.cache,
        )

    # One seed

    def _train_seed(self, seed: int, states: States | None) -> None:
        """Train every contender with one seed."""
        loaded = self._data(seed)
        self._note_sentences(loaded.training)
        self.contenders.rate = self.options.learning_rate(loaded.batches.turns_an_epoch // self.options.accumulate)
        with data.Feed(loaded, self.rank, device=self.device) as feed:
            first = models.build(self.options.model, seed)
            self._refuse_memory(first)
            if self.options.conformance and not self.progress.conformance:
                self._hold_against_oracle(first, loaded, seed)
            contenders = list(self.contenders.of_seed(first, feed, seed))
            self.progress.bucket_mib = self.contenders.bucket_mib
            for contender in contenders:
                if states is not None:
                    contender.restore(states[0][contender.name], states[1][contender.name])
            self._train_blocks(contenders, loaded, seed, feed)
            self._finish_seed(contenders)

    def _note_sentences(self, training: data.Samples) -> None:
        """Note the sentences of the training; raises InputError if a run that goes on had others."""
        if isinstance(training, data.Sentences):
            self.progress.sentences = training.same(self.progress.sentences, self.checkpoints.folder)
            self.results.notes = [data.translation.NOTE] if training.generated else []

    def _refuse_memory(self, first: torch.nn.Module) -> None:
        """Raises InputError if the launch needs more memory than there is; says so if checkpoints do not fit."""
        parameters = sum(parameter.numel() for parameter in first.parameters())
        kept = len(self.contenders.optimizer.kept)
        need = memory.needed(
            parameters,
            self.plans,
            sum(memory.of_peer(peer.kind, self.ranks, kept) for peer in self.peers),
            references=self.options.references,
            conformance=0 if self.progress.conformance else self.options.conformance,
            width=exactness(first, self.plans).itemsize,
        )
        memory.refuse(self.options.model, need, self.rank, self.device)
        copies = (1 + kept) * (len(self.plans) + len(self.peers))
        self._say(checkpoint.room(self.checkpoints.folder, parameters, copies))

    def _hold_against_oracle(self, first: torch.nn.Module, loaded: data.Data, seed: int) -> None:
        hurried = replay.without_waiting(first)
        turns = self.options.conformance
        held = Held(loaded, hurried, self.loss, seed, self.rank, self.groups, turns, self.plans, self.contenders.rate)
        for number, plan in enumerate(self.plans, 1):
            self._say(f"conformance {number}/{len(self.plans)}: {plan.name}")
            self.progress.conformance[plan.name] = held.against_oracle(plan)

    def _train_blocks(self, contenders: list[Contender], loaded: data.Data, seed: int, feed: data.Feed) -> None:
        options, an_epoch = self.options, loaded.batches.turns_an_epoch // self.options.accumulate
        total = options.turns(an_epoch)
        begun, start = self.progress.done, time.monotonic()
        reported = 0.0
        while total - self.progress.done >= 2:  # of one turn alone nothing could be timed
            first = self.progress.done
            turns = min(options.block, total - first)
            number = first // options.block
            ends_epoch = (first + turns) // an_epoch > first // an_epoch
            for contender in contenders if number % 2 == 0 else contenders[::-1]:
                self._train_block(contender, seed, first, turns, feed)
                if ends_epoch:
                    self._evaluate(contender, loaded, seed, first + turns - 1)
            self.progress.done = first + turns
            if time.monotonic() - reported > 1 or total - self.progress.done < 2:
                reported = time.monotonic()
                left = (reported - start) / (self.progress.done - begun) * (total - self.progress.done)
                loss = np.mean([contender.losses[-1] for contender in contenders])
                self._say(
                    f"seed {seed}, iteration {self.progress.done}/{total} of {len(contenders)} contenders, "
                    f"loss {loss:.4f}, {left:.0f} s left"
                )
            # none if all is trained: a run that goes on has a block to run, whose traces are kept
            through = total - self.progress.done < 2 and self.progress.seed == len(options.seeds) - 1
            if not through and self.checkpoints.due():
                self._checkpoint(contenders)

    def _train_block(self, contender: Contender, seed: int, first: int, turns: int, feed: data.Feed) -> None:
        seen = len(contender.losses)
        feed.taken_seconds()  # of what others have read
        ends = contender.run(turns)
        reading = feed.taken_seconds()
        trace = None
        if isinstance(contender, Planned):
            trace = gathered(contender.plan, contender.trace(), self.rank, turns)
            self.results.traces[contender.name] = trace
        if self.rank != 0:
            return
        record = self.progress.records.setdefault(contender.name, Record())
        record.block(seed, first, contender.losses[seen:], ends, trace)
        if reading is not None:
            record.reading.append(reading)
        if isinstance(contender.model, replay.Replayed):
            record.absorbed.append(contender.model.absorbed_seconds() / turns)

    def _evaluate(self, contender: Contender, loaded: data.Data, seed: int, turn: int) -> None:
        """Record the accuracy of what trains, and BLEU of translations, on rank 0; the other ranks wait for it."""
        if isinstance(contender, NoCommunication | OneRank) or loaded.test is None:
            return
        model = contender.whole()
        if self.rank == 0:
            record = self.progress.records[contender.name]
            record.accuracy.append((seed, turn, data.accuracy(model, loaded.test, spec=self.spec)))
            if isinstance(loaded.test, data.Sentences):
                score, signature = data.bleu.bleu(model, loaded.test)
                record.bleu.append((seed, turn, score))
                self.results.machines["bleu"] = signature
        dist.barrier()  # the others wait here, where they may, and not in their next message

    def _checkpoint(self, contenders: list[Contender]) -> None:
        states = {contender.name: contender.state() for contender in contenders}
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
            if isinstance(contender, Planned):
                self.results.details[contender.name] = {
                    "plan": contender.plan.digest,
                    **contender.plan.provenance,
                    "held_bytes": contender.held_bytes("parameter", "momentum"),
                    "state_bytes": contender.held_bytes("momentum"),
                }
                if name := contender.plan.holding("scaler"):
                    scaler = contender.executor.buffers[name]
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
