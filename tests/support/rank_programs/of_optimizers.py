"""Every optimizer under learning-rate schedules: plans of every update and peers, broken off and resumed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

import small_model
from gradsync import optimizers, updates
from gradsync.configuration.peers import Peer
from gradsync.learning_rates import LearningRate
from gradsync.measure import ratios
from gradsync.optimizers import Optimizer
from gradsync.runtime.compute import Forward
from gradsync.runtime.contenders import Contender, Planned
from gradsync.runtime.devices import PROCESSOR
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.peers import KINDS, make
from queued_device import QueuedProcessor
from tiny_workloads import workload

BROKEN_OFF = 3  # turns


class Case(NamedTuple):
    """An optimizer and the schedule of its rate."""

    optimizer: Optimizer
    rate: LearningRate


OPTIMIZED = {
    **{name: Case(optimizers.get(name, lr=0.05), LearningRate()) for name in optimizers.names()},
    "decaying sgd": Case(
        optimizers.get("sgd", lr=0.1, momentum=0.9, weight_decay=0.01), LearningRate("cosine", 3, small_model.TURNS)
    ),
    "decaying adam": Case(optimizers.get("adam", lr=0.05, weight_decay=0.01), LearningRate("step:5,0.5", 4)),
    "decaying lars": Case(optimizers.get("lars", lr=0.5, trust=0.05, weight_decay=0.01), LearningRate("step:5,0.5", 4)),
    "decaying lamb": Case(optimizers.get("lamb", lr=0.02, weight_decay=0.1), LearningRate("cosine", 3, 30)),
    "decaying adamw": Case(optimizers.get("adamw", lr=0.05, weight_decay=0.1), LearningRate("linear", 0, 30)),
}


DEALT = [case for case in OPTIMIZED if OPTIMIZED[case].optimizer.ratios]  # of norms that can be dealt to ranks


def together(case: str) -> list[str]:
    """The updates that the optimizer of a case goes with."""
    return [update for update in updates.names() if not (case in DEALT and updates.pieces(update))]


def optimized(rank: int, ranks: int) -> dict[tuple[str, str], np.ndarray]:
    """(case, update or peer) -> parameters after all turns, half of them by another contender that was restored."""
    groups, queued = Groups(), Groups(QueuedProcessor())
    ended: dict[tuple[str, str], np.ndarray] = {}

    def forward() -> Forward:
        return small_model.forward(small_model.build(), rank)

    def sample(turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        return small_model.sample(rank, turn)

    def planned(case: str, update: str, on: Groups, pto: bool = False) -> Contender:
        plan = small_model.plan("mgwfbp", ranks, update=update, optimizer=OPTIMIZED[case].optimizer, pto=pto)
        return Planned(plan, forward(), sample, on, Pool(), OPTIMIZED[case].rate)

    def peer(case: str, kind: str) -> Contender:
        chosen = Peer.model_validate({"name": kind, "kind": kind})
        return make(chosen, forward(), sample, {}, groups, **OPTIMIZED[case]._asdict())

    for case in OPTIMIZED:
        for update in together(case):
            ended[case, update] = _resumed(partial(planned, case, update, groups))
        ended[case, "queued"] = _resumed(partial(planned, case, "ssgd", queued))
        if case in DEALT:
            ended[case, "pto"] = _resumed(partial(planned, case, "ssgd", groups, pto=True))
            ended[case, "pto queued"] = _resumed(partial(planned, case, "ssgd", queued, pto=True))
        for kind in KINDS:
            ended[case, kind] = _resumed(partial(peer, case, kind))
    groups.close()
    queued.close()
    return ended


def _resumed(contender: Callable[[], Contender]) -> np.ndarray:
    broken = contender()
    broken.run(BROKEN_OFF)
    alike, own = copy.deepcopy(broken.state())
    broken.close()
    checkpoint = [alike]
    dist.broadcast_object_list(checkpoint, 0)  # as a checkpoint: rank 0's for all
    again = contender()
    again.restore(checkpoint[0], own)
    again.run(small_model.TURNS - BROKEN_OFF)
    parameters = again.parameters()
    again.close()
    tensors = small_model.plan("wfbp", 1).tensors
    return torch.cat([parameters[tensor.name].reshape(-1) for tensor in tensors]).numpy().copy()


def ratios_alone(rank: int, ranks: int) -> dict[tuple[str, bool], list[np.ndarray]]:
    """(optimizer, whether in queues) -> all ratios as each rank computes them, and as they are dealt and gathered."""
    load = workload([4 * size for size in (1000, 10, 1, 333, 50_000)], [1.0] * 5)
    found: dict[tuple[str, bool], list[np.ndarray]] = {}
    for device in (PROCESSOR, QueuedProcessor()):
        groups = Groups(device)
        for name in ("lars", "lamb"):
            for dealt in (False, True):
                executor = prepare(ratios.alone(load, name, ranks, dealt=dealt), rank, groups)
                for seed, values in enumerate(executor.buffers.values()):
                    values.uniform_(0.1, 1.0, generator=torch.Generator().manual_seed(seed))
                executor.run(2)
                found.setdefault((name, device.queued), []).append(executor.buffers["ratios"].numpy().copy())
        groups.close()
    return found
