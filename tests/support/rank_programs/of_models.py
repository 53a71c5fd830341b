"""Training of real models, with schedules and with stock DDP."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

import real_models as real
from gradsync import schedules
from gradsync.configuration.peers import Peer
from gradsync.engine.oracle import evaluate
from gradsync.plan import Plan
from gradsync.runtime.compute import ModelCompute, bind, bind_statistics, oracle_gradient
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.peers import KINDS, make

OTHERS = [Peer(name=kind, kind=kind) for kind in KINDS if kind != "ddp"]


class Apart(NamedTuple):
    """How far a training on ranks has ended from plain torch: its parameters, and those with the statistics."""

    parameters: float
    everything: float


def real_models(rank: int, ranks: int) -> dict[tuple[str, str, str], Any]:
    """(model, schedule or peer, type) -> how far it is from plain torch; `buckets` of DDP with an exported plan."""
    groups = Groups()
    trained: dict[tuple[str, str, str], Any] = {}
    for name in (name for name, number in real.RANKS if number == ranks):
        wanted = {
            (kind, turns): real.reference(name, ranks, turns, getattr(torch, kind))
            for kind, turns in (("float64", real.TURNS), ("float32", 1))
        }
        for schedule in schedules.names():
            plan = real.plan(schedule, name, ranks)
            for (kind, turns), values in wanted.items():
                ended = train_real(plan, name, rank, groups, getattr(torch, kind), turns)
                trained[name, schedule, kind] = _apart_from(values, ended)
        of_peers, plans = wanted["float64", real.TURNS], {"mgwfbp": real.plan("mgwfbp", name, ranks, "float64")}
        kept = Peer(name="fsdp2_kept", kind="fsdp2", reshard_after_forward=False)
        for peer in (Peer(name="ddp", plan="mgwfbp"), *OTHERS, kept):
            ended, details = _train_peer(peer, name, rank, real.TURNS, plans)
            trained[name, peer.name, "float64"] = _apart_from(of_peers, ended)
            if peer.plan:
                trained[name, peer.name, "buckets"] = details["bucket_bytes"]
    groups.close()
    return trained


def _apart_from(wanted: dict[str, np.ndarray], ended: dict[str, np.ndarray]) -> Apart:
    assert ended.keys() == wanted.keys()
    parameters = {key: value for key, value in ended.items() if not key.startswith(real.STATISTICS)}
    return Apart(_apart(parameters, wanted), _apart(ended, wanted))


def quarter_models(rank: int, ranks: int) -> dict[tuple[str, str], dict[str, Any]]:
    """(model, schedule) -> how far what it has trained is from others: parameters are too large to be brought back.

    `start` and names of peers: from those it began with, and from theirs; on rank 0 also `reference` and `oracle`: with
    its statistics from plain torch on the ranks' shards in turn, and from the oracle. `statistics` of batch
    normalisation.
    """
    groups = Groups()
    distances: dict[tuple[str, str], dict[str, Any]] = {}
    turns = real.QUARTER_TURNS
    for name in real.QUARTERS:
        start = real.trained(real.build(name))
        others = {peer.name: _train_peer(peer, name, rank, turns)[0] for peer in (Peer(name="ddp"), *OTHERS)}
        if rank == 0:
            others["reference"] = real.reference(name, ranks, turns, torch.float64)
        for schedule in real.AT_ONCE:
            plan = real.plan(schedule, name, ranks, cost=real.SHARED)
            ended = train_real(plan, name, rank, groups, torch.float64, turns)
            parameters = {tensor.name: ended[tensor.name] for tensor in plan.tensors}
            distances[name, schedule] = distance = {key: _apart(parameters, other) for key, other in others.items()}
            distance["start"] = _apart(parameters, start)
            distance["statistics"] = {key: value for key, value in ended.items() if key not in parameters}
            if rank == 0:
                distance["reference"] = _apart(ended, others["reference"])
                distance["oracle"] = _apart(parameters, _evaluated(plan, name, start))
    groups.close()
    return distances


def _apart(ours: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> float:
    return float(np.max([np.abs(value - others[key]).max() for key, value in ours.items()]))


def _evaluated(plan: Plan, name: str, start: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the oracle says that rank 0 has in the end, by tensor."""
    model = real.build(name)
    gradient = oracle_gradient(
        lambda rank: real.forward(model, rank, name), plan, lambda rank, number: real.sample(name, rank, number)
    )
    begin = np.concatenate([start[tensor.name].reshape(-1) for tensor in plan.tensors])
    flat = evaluate(plan, real.QUARTER_TURNS, gradient, {"parameter": begin}, dtype="float64")[0]["parameter"]
    return {tensor.name: flat[tensor.start : tensor.stop].reshape(start[tensor.name].shape) for tensor in plan.tensors}


def _train_peer(
    peer: Peer, name: str, rank: int, turns: int, plans: dict[str, Plan] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Parameters and statistics after training with a peer, and its details."""
    model = real.build(name)
    shapes = {key: parameter.shape for key, parameter in model.named_parameters()}
    contender = make(
        *(peer, real.forward(model, rank, name), lambda turn: real.sample(name, rank, turn), plans or {}),
        optimizer=real.OPTIMIZER,
    )
    contender.run(turns)
    ended = {key: value.reshape(shapes[key]).numpy().copy() for key, value in contender.parameters().items()}
    return ended | real.statistics_of(model), contender.details()


def train_real(
    plan: Plan, name: str, rank: int, groups: Groups, dtype: torch.dtype, turns: int
) -> dict[str, np.ndarray]:
    executor = Executor(plan, rank, groups, dtype=dtype)
    model = real.build(name, dtype)
    bind(model, plan, executor.buffers["parameter"])
    if "statistics" in executor.buffers:
        bind_statistics(model, executor.buffers["statistics"])
    compute = ModelCompute(
        *(real.forward(model, rank, name), lambda number: real.sample(name, rank, number, dtype)), passes=plan.passes
    )
    executor.run(turns, compute)
    compute.close()
    return real.trained(model)
