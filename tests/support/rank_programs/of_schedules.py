"""Training with every schedule, and with micro-batches: a small model on real ranks."""

from __future__ import annotations

import dataclasses
import traceback
from typing import Any

import numpy as np
import torch

import real_models as real
import small_model
from gradsync import schedules
from gradsync.collectives import NATIVE
from gradsync.configuration.peers import Peer
from gradsync.errors import RunError
from gradsync.plan import WORLD, Axis, Plan
from gradsync.runtime.compute import ModelCompute, bind
from gradsync.runtime.devices import Device, pick
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.peers import KINDS, make
from gradsync.runtime.peers.ddp import StockDDP
from gradsync.runtime.timing import all_reduce_seconds, collective_seconds
from queued_device import QueuedProcessor
from rank_programs.of_models import train_real

COMPOSED_RANKS = 4  # that every collective can serve, on two levels if it has levels


def all_schedules(rank: int, ranks: int) -> dict[tuple[str, str], Any]:
    """Parameters after training with every schedule, and of two broken plans."""
    groups = Groups()
    parameters: dict[tuple[str, str], Any] = {}
    for name in schedules.names():
        for algorithm in (NATIVE, "ring"):
            try:
                parameters[name, algorithm] = train(small_model.plan(name, ranks, algorithm), rank, groups)
            except Exception:  # a schedule that fails must not hide the others
                parameters[name, algorithm] = traceback.format_exc()
    parameters["dropped message", NATIVE] = train(without_message(small_model.plan("wfbp", ranks), 2), rank, groups)
    plan = small_model.plan("naive", ranks)  # in naive, messages wait for nothing but the end of backward
    try:
        Executor(swapped(plan, 2, 3) if rank == 1 else plan, rank, groups)
    except RunError as error:
        parameters["swapped messages", NATIVE] = str(error)
    groups.close()
    return parameters


def composed_schemes(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with every collective."""
    groups = Groups()
    parameters: dict[str, Any] = {}
    for name, scheme in small_model.composed().items():
        try:
            parameters[name] = train(small_model.of_scheme(scheme, ranks), rank, groups)
        except Exception:  # one that fails must not hide the others
            parameters[name] = traceback.format_exc()
    groups.close()
    return parameters


def queued_schedules(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with every schedule on a device that queues; times of messages in teams."""
    device = QueuedProcessor()
    groups = Groups(device)
    parameters: dict[str, Any] = {}
    for name in schedules.names():
        try:
            parameters[name] = train(small_model.plan(name, ranks), rank, groups)
        except Exception:  # a schedule that fails must not hide the others
            parameters[name] = traceback.format_exc()
    groups.close()
    teams = [[number] for number in range(ranks - 1)]  # the last rank is in none
    parameters["alone"] = all_reduce_seconds([4, 4000], 30, 0.01, device=device, teams=teams)
    parameters["all"] = all_reduce_seconds([4, 4000], 30, 0.01, device=device)
    return parameters


def gpu_schedules(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with every schedule on GPUs, on two lanes, and by level; times of messages."""
    device = pick("cuda")
    groups = Groups(device)
    plans = {name: small_model.plan(name, ranks) for name in schedules.names()}
    plans |= {"two lanes": small_model.two_lanes(plans["wfbp"]), "by level": small_model.by_level(ranks)}
    parameters: dict[str, Any] = {name: train(plan, rank, groups) for name, plan in plans.items()}
    groups.close()
    parameters["times"] = all_reduce_seconds([4, 4_000_000], 30, 0.01, device=device)
    parameters["kinds"] = _halves_seconds(device, ranks)
    return parameters


def _halves_seconds(device: Device, ranks: int) -> dict[str, dict[int, list[float]]]:
    """Seconds of the halves of an all-reduce, over all ranks and over those of one node, on GPUs."""
    axes = (Axis("node", 1), Axis("local", ranks))
    return {
        f"{kind}@{over}": collective_seconds(
            NATIVE, (), [4, 4_000_000], 30, 0.01, kind=kind, over=over, axes=axes, device=device
        )
        for kind in ("reduce_scatter", "all_gather")
        for over in (WORLD, "local")
    }


def shared_gpu_schedules(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with every schedule, and on two lanes, on a shared GPU; or what went wrong."""
    device = pick("cuda")
    device.backend = "gloo"
    groups = Groups(device)
    plans = {name: small_model.plan(name, ranks) for name in schedules.names()}
    parameters: dict[str, Any] = {}
    for name, plan in {**plans, "two lanes": small_model.two_lanes(plans["wfbp"])}.items():
        try:
            parameters[name] = train(plan, rank, groups)
        except Exception:  # one that fails must not hide the others
            parameters[name] = traceback.format_exc()
    groups.close()
    parameters["kinds"] = _halves_seconds(device, ranks)
    return parameters


MICRO_BATCHES: list[dict[str, Any]] = [
    {"accumulate": accumulate, "clip_norm": clip} for accumulate in (1, 3) for clip in (None, 0.3)
]


def micro_batches(rank: int, ranks: int) -> dict[tuple[str, int], Any]:
    """(schedule or DDP, number of the case) -> parameters after steps of several micro-batches, clipped and not."""
    groups, queued = Groups(), Groups(QueuedProcessor())
    parameters: dict[tuple[str, int], Any] = {}
    for number, case in enumerate(MICRO_BATCHES):
        for name in ("wfbp", "mgwfbp", "single"):
            parameters[name, number] = train(small_model.plan(name, ranks, **case), rank, groups)
        parameters["ring", number] = train(small_model.plan("mgwfbp", ranks, "ring", **case), rank, groups)
        parameters["queued", number] = train(small_model.plan("mgwfbp", ranks, **case), rank, queued)
        for kind in KINDS:
            forward = small_model.forward(small_model.build(), rank)
            contender = make(
                *(Peer(name=kind, kind=kind), forward, lambda turn: small_model.sample(rank, turn), {}, groups),
                optimizer=small_model.OPTIMIZER,
                **case,
            )
            contender.run(small_model.TURNS)
            ended, plan = contender.parameters(), small_model.plan("wfbp", ranks)
            parameters[kind, number] = torch.cat([ended[tensor.name] for tensor in plan.tensors]).numpy().copy()
            parameters["losses of " + kind, number] = list(contender.losses)
    case = {"accumulate": 3, "clip_norm": 0.5}  # batch normalisation: its statistics are sent once a step
    plan = real.plan("mgwfbp", "resnet8", ranks, **case)
    parameters["resnet8", 0] = train_real(plan, "resnet8", rank, groups, torch.float64, real.TURNS)
    network = real.build("resnet8")
    peer = StockDDP(
        *(Peer(name="ddp"), real.forward(network, rank), lambda number: real.sample("resnet8", rank, number)),
        *({}, groups),
        optimizer=real.OPTIMIZER,
        **case,
    )
    syncs, sync = [], peer.ddp._sync_buffers
    peer.ddp._sync_buffers = lambda: (syncs.append(peer.turn), sync())
    peer.run(real.TURNS)
    parameters["resnet8 of ddp", 0], parameters["resnet8 of ddp", 1] = real.trained(network), len(syncs)
    groups.close()
    queued.close()
    return parameters


def train(plan: Plan, rank: int, groups: Groups) -> np.ndarray:
    executor, device = prepare(plan, rank, groups), groups.device
    model = small_model.build().to(device.torch_device)
    bind(model, plan, executor.buffers["parameter"])

    def sample(turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = small_model.sample(rank, turn)
        return device.put(images), device.put(labels)

    compute = ModelCompute(small_model.forward(model, rank), sample, queued=device.queued, passes=plan.passes)
    executor.run(small_model.TURNS, compute)
    compute.settle()
    compute.close()
    return executor.buffers["parameter"].cpu().numpy().copy()


def without_message(plan: Plan, number: int) -> Plan:
    """The plan with one of its messages taken out (not the last, which the update waits for)."""
    (role,) = plan.roles
    body = tuple(op for op in role.body if op.name != f"message{number}")
    assert len(body) == len(role.body) - 1
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def swapped(plan: Plan, first: int, second: int) -> Plan:
    """The plan with two of its messages in each other's place."""
    (role,) = plan.roles
    place = {op.name: i for i, op in enumerate(role.body)}
    body = list(role.body)
    i, j = place[f"message{first}"], place[f"message{second}"]
    body[i], body[j] = body[j], body[i]
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(body)),))
