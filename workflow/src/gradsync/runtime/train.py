"""Train a model under several plans in turn, in one launch, so that they can be compared.

Each plan has a model, parameters and momentum of its own, all from the same seed and on the same samples. Plans take
turns in blocks of iterations, A B C .. C B A, so that a slow moment of the machine falls on all of them; the first
iteration of a block is not timed. Before that every plan is held against the oracle in float64.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync import oracle
from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.results import Result, machine, write_whole
from gradsync.runtime import data, models
from gradsync.runtime.compute import ModelCompute, bind, oracle_gradient
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.trace import Span, Trace

CONFORMANCE_TURNS = 3
CONFORMANCE_TOLERANCE = 1e-9  # float64; sums differ in order only
TRACE_TURNS = 3


@dataclass(frozen=True)
class Options:
    """What to train; see the configuration."""

    model: str
    data: str
    batch: int
    epochs: int
    block: int
    seed: int
    reference: str = "wfbp"


class _Contender:
    """One plan with its model."""

    def __init__(
        self, plan: Plan, rank: int, groups: Groups, options: Options, training: data.Split, batches: data.Batches
    ):
        self.plan = plan
        self.executor = Executor(plan, rank, groups)
        self.model = models.build(options.model, options.seed)
        bind(self.model, plan, self.executor.buffers["parameter"])
        self.compute = ModelCompute(self.model, lambda turn: _shard(training, batches, turn, rank, torch.float32))
        self.seconds: dict[int, float] = {}  # turn -> iteration seconds, where timed
        self.blocks: list[float] = []  # median iteration seconds of each block
        self.accuracy: dict[int, float] = {}  # turn -> test accuracy after it

    def run(self, turns: int) -> None:
        """One block."""
        first = self.executor.turn
        seen = len(self.executor.spans)
        self.executor.run(turns, self.compute)
        starts = {s.turn: s.start for s in self.executor.spans[seen:] if s.verb == "need"}
        ends = {s.turn: s.end for s in self.executor.spans[seen:] if s.operation == "update"}
        timed = {turn: ends[turn] - starts[turn] for turn in range(first + 1, first + turns)}
        self.seconds |= timed
        self.blocks.append(float(np.median(list(timed.values()))))


def train(plans: list[Plan], options: Options, folder: Path, rank: int, ranks: int) -> None:
    """Run in every rank; rank 0 writes `folder/<scheme>/{result.json, metrics.csv, trace.json}`.

    Raises RunError where a plan does not compute what the oracle says, or ranks end with different parameters.
    """
    training, test, batches = data.load(
        options.data, options.model, models.get(options.model).shape, options.batch, ranks, options.seed
    )
    groups = Groups()
    conformance = {plan.name: _conformance(plan, options, training, batches, rank, groups) for plan in plans}
    contenders = [_Contender(plan, rank, groups, options, training, batches) for plan in plans]
    total = batches.turns_an_epoch * options.epochs
    start = time.monotonic()
    for block, first in enumerate(range(0, total, options.block)):
        turns = min(options.block, total - first)
        if turns < 2:
            break  # nothing of it could be timed
        for contender in contenders if block % 2 == 0 else contenders[::-1]:
            contender.run(turns)
            epoch_ends = (first + turns) // batches.turns_an_epoch > first // batches.turns_an_epoch
            if rank == 0 and (epoch_ends or first + turns >= total - 1):
                contender.accuracy[first + turns - 1] = _accuracy(contender.model, test)
        if rank == 0:
            done = first + turns
            left = (time.monotonic() - start) / done * (total - done)
            losses = np.mean([c.compute.losses[-1] for c in contenders])
            print(
                f"iteration {done}/{total} of {len(plans)} schemes, loss {losses:.4f}, {left:.0f} s left",
                file=sys.stderr,
            )
    for contender in contenders:
        conformance[contender.plan.name] |= _same_on_all_ranks(contender.executor.buffers["parameter"])
        bad = not np.isfinite(contender.compute.losses).all()
        if bad:
            turn = int(np.flatnonzero(~np.isfinite(contender.compute.losses))[0])
            raise RunError(f"rank {rank}, scheme {contender.plan.name!r}: loss is not finite at iteration {turn}")
    traces = [_gathered_trace(contender, rank) for contender in contenders]
    groups.close()
    if rank == 0:
        _save(contenders, traces, conformance, options, folder, ranks)


def _shard(
    split: data.Split, batches: data.Batches, turn: int, rank: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = batches.indices(turn, rank)
    return split.images[chosen].to(dtype), split.labels[chosen]


def _conformance(
    plan: Plan, options: Options, training: data.Split, batches: data.Batches, rank: int, groups: Groups
) -> dict[str, Any]:
    """Execute some steps in float64 and compare with the oracle, which runs the ranks' shards in turn on rank 0."""
    executor = Executor(plan, rank, groups, dtype=torch.float64)
    model = models.build(options.model, options.seed).double()
    bind(model, plan, executor.buffers["parameter"])
    initial = executor.buffers["parameter"].numpy().copy()
    compute = ModelCompute(model, lambda turn: _shard(training, batches, turn, rank, torch.float64))
    executor.run(CONFORMANCE_TURNS, compute, record=False)
    compute.close()
    difference = torch.zeros(1, dtype=torch.float64)
    if rank == 0:
        gradient = oracle_gradient(
            models.build(options.model, options.seed).double(),
            plan,
            lambda peer, turn: _shard(training, batches, turn, peer, torch.float64),
        )
        expected = oracle.evaluate(plan, CONFORMANCE_TURNS, gradient, {"parameter": initial}, dtype="float64")
        difference[0] = float(np.abs(expected[0]["parameter"] - executor.buffers["parameter"].numpy()).max())
    dist.broadcast(difference, 0)
    if not float(difference) <= CONFORMANCE_TOLERANCE:
        raise RunError(
            f"scheme {plan.name!r} does not compute what its plan says: after {CONFORMANCE_TURNS} float64 steps "
            f"parameters differ from the oracle's by {float(difference):.3g}"
        )
    return {"oracle_steps": CONFORMANCE_TURNS, "oracle_difference": float(difference)}


def _same_on_all_ranks(parameter: torch.Tensor) -> dict[str, Any]:
    digests: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(digests, hashlib.sha256(parameter.numpy().tobytes()).hexdigest())
    if len(set(digests)) > 1:
        raise RunError("ranks ended with different parameters")
    return {"parameters_sha256": digests[0]}


def _accuracy(model: torch.nn.Module, test: data.Split) -> float:
    with torch.no_grad():
        return float((model(test.images).argmax(1) == test.labels).float().mean())


def _gathered_trace(contender: _Contender, rank: int) -> Trace:
    """The last turns of all ranks, on rank 0."""
    trace = contender.executor.trace()
    mine = [span for span in trace.spans if span.turn >= trace.turns - TRACE_TURNS]
    found: list[list[Span]] | None = [[] for _ in range(dist.get_world_size())] if rank == 0 else None
    dist.gather_object(mine, found)
    spans = tuple(span for part in found or [mine] for span in part)
    return Trace(trace.name, "measured", trace.turns, spans, trace.provenance)


def _save(
    contenders: list[_Contender],
    traces: list[Trace],
    conformance: dict[str, dict[str, Any]],
    options: Options,
    folder: Path,
    ranks: int,
) -> None:
    reference = next((c for c in contenders if c.plan.name == options.reference), contenders[0])
    for contender, trace in zip(contenders, traces, strict=True):
        name = contender.plan.name
        low, middle, high = median_interval(np.array(contender.blocks))
        ratio_low, ratio, ratio_high = median_interval(np.array(contender.blocks) / np.array(reference.blocks))
        last = max(contender.accuracy)
        result = Result(
            rung="measured",
            paper="mgwfbp",
            table="training",
            scheme=name,
            model=options.model,
            ranks=ranks,
            settings={
                "data": options.data,
                "batch": options.batch,
                "epochs": options.epochs,
                "seed": options.seed,
                "plan": contender.plan.digest,
                **contender.plan.provenance,
            },
            provenance={**machine(), "torch": torch.__version__, "threads": torch.get_num_threads(), "backend": "gloo"},
            summary={
                "messages": float(len(contender.plan.messages())),
                "iteration_seconds": middle,
                "iteration_seconds_low": low,
                "iteration_seconds_high": high,
                "exposed_communication_seconds": trace.exposed_communication_seconds(),
                f"ratio_to_{reference.plan.name}": ratio,
                f"ratio_to_{reference.plan.name}_low": ratio_low,
                f"ratio_to_{reference.plan.name}_high": ratio_high,
                "pairs": float(len(contender.blocks)),
                "accuracy": contender.accuracy[last],
                "final_loss": contender.compute.losses[-1],
            },
            conformance=conformance[name],
            notes=[] if ranks <= machine()["cores"] else [f"{ranks} ranks share {machine()['cores']} cores"],
        )
        lines = ["step,loss,iteration_seconds,accuracy"]
        for turn, loss in enumerate(contender.compute.losses):
            seconds, accuracy = contender.seconds.get(turn), contender.accuracy.get(turn)
            lines.append(",".join("" if v is None else repr(v) for v in (turn, loss, seconds, accuracy)))
        write_whole(folder / name / "metrics.csv", "\n".join(lines) + "\n")
        write_whole(folder / name / "trace.json", trace.to_json())
        write_whole(folder / name / "plan.json", contender.plan.to_json())
        result.save(folder / name)
    write_whole(folder / "schemes.json", json.dumps([c.plan.name for c in contenders]) + "\n")


def median_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """(low, median, high): the distribution-free interval of the median by order statistics."""
    from scipy.stats import binom

    ordered = np.sort(values)
    n = len(ordered)
    k = int(binom.ppf((1 - confidence) / 2, n, 0.5))  # at most k values lie below the median with that probability
    return float(ordered[max(k - 1, 0)]), float(np.median(ordered)), float(ordered[min(n - k, n - 1)])
