"""Training in phases: a small model on real ranks, in one go and broken off before, at and after each switch."""

from __future__ import annotations

import copy
import traceback
from typing import Any

import numpy as np
import torch.distributed as dist

import small_model
from gradsync.configuration import schemes
from gradsync.plan.phases import Phase, PhasedPlan
from gradsync.runtime.devices import Device
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.phased import Phased
from queued_device import QueuedProcessor

PHASE_TURNS = 9
PHASE_RANKS = 4
NODES = "dense_gpu:2,2"
QUEUED_PHASES = ("carried", "flushed queued")  # also on a device that queues its work
BROKEN_OFF = ("flushed", "carried on")  # and resumed

_HITOPK = {"schedule": "mgwfbp", "collective": "hitopk", "compressor": "mstopk", "density": 0.1, "topology": NODES}
_NAIVE = {"schedule": "wfbp", "collective": "allgather_sparse", "compressor": "exact_topk", "density": 0.1}
_TORUS = {"schedule": "single", "collective": "torus2d", "topology": NODES}
_MERGED = {"schedule": "mgwfbp"}


def phased_plans(ranks: int = PHASE_RANKS) -> dict[str, tuple[PhasedPlan, tuple[int, ...]]]:
    """By case, the plans and the first turns of all phases but the first."""

    def phased(residual: Any, *parts: dict[str, Any], **settings: Any) -> PhasedPlan:
        settings = settings or {"lr": small_model.LR}
        plans = [
            schemes.plan(
                schemes.Scheme(name=f"phase{number}", **part), small_model.load(), small_model.COST, ranks, **settings
            )
            for number, part in enumerate(parts)
        ]
        made = PhasedPlan("phased", residual, tuple(Phase(1 / len(plans), plan) for plan in plans))
        made.refuse()
        return PhasedPlan.from_json(made.to_json())

    momentum = {"lr": small_model.LR, "momentum": small_model.MOMENTUM}
    without = {**_HITOPK, "error_feedback": False}
    priority, by_message = {"schedule": "priority"}, {"schedule": "wfbp", "update": "by_message"}
    return {
        "flushed": (phased("flush", _HITOPK, _TORUS), (4,)),
        "flushed queued": (phased("flush", _HITOPK, _MERGED), (4,)),
        "carried": (phased("carry", _NAIVE, _MERGED), (4,)),
        "carried on": (phased("carry", _NAIVE, _HITOPK, _MERGED), (3, 5)),
        "flushed with momentum": (phased("flush", _HITOPK, _TORUS, **momentum), (4,)),
        "carried by adam": (phased("carry", _HITOPK, _TORUS, optimizer="adam", lr=0.01), (4,)),
        "clipped micro-batches": (phased("flush", _HITOPK, _MERGED, accumulate=2, clip_norm=0.5, **momentum), (4,)),
        "nothing left": (phased("carry", without, _TORUS), (4,)),
        "dense": (phased("carry", _MERGED, _TORUS, {"schedule": "wfbp"}, **momentum), (2, 5)),
        "by message": (phased("carry", {**_NAIVE, **by_message}, priority, **momentum), (4,)),
        "same shards": (
            phased("carry", {"schedule": "pipelined"}, {"schedule": "pipelined", "collective": "ring"}, **momentum),
            (4,),
        ),
    }


def phases(rank: int, ranks: int) -> dict[str, Any]:
    """By case, the parameters at the end, in one go and resumed at turns around the switches; else what went wrong."""
    devices: dict[str, Device | None] = {"": None, "queued ": QueuedProcessor()}
    ended: dict[str, Any] = {}
    for label, device in devices.items():
        groups = Groups(device) if device else Groups()
        for name, (phased, switches) in phased_plans(ranks).items():
            if device and name not in QUEUED_PHASES:
                continue
            try:
                turns = [
                    turn + around for turn in switches for around in (-1, 0, 1) if name in BROKEN_OFF and not device
                ]
                broken = dict.fromkeys(turns)
                ended[label + name] = {turn: _trained(phased, switches, rank, groups, turn) for turn in (None, *broken)}
            except Exception:  # one that fails must not hide the others
                ended[label + name] = traceback.format_exc()
        groups.close()
    return ended


def _trained(
    phased: PhasedPlan, switches: tuple[int, ...], rank: int, groups: Groups, breaks: int | None
) -> dict[str, np.ndarray]:
    def made() -> Phased:
        forward = small_model.forward(small_model.build(), rank)
        return Phased(phased, switches, forward, lambda number: small_model.sample(rank, number), groups, Pool())

    contender = made()
    if breaks is not None:
        contender.run(breaks)
        alike, own = copy.deepcopy(contender.state())
        checkpoint = [alike]
        dist.broadcast_object_list(checkpoint, 0)  # as a checkpoint: rank 0's for all
        contender.close()
        contender = made()
        contender.restore(checkpoint[0], own)
    contender.run(PHASE_TURNS - contender.turn)
    assert len(contender.losses) == PHASE_TURNS - (breaks or 0)
    contender.close()
    return {name: value.numpy().copy() for name, value in contender.parameters().items()}
