"""Training with matrices that travel as factors: a small model on real ranks, by plans and by torch's own hook."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import small_model
from gradsync.compressors import powersgd
from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.plan import Plan
from gradsync.runtime.compute import ModelCompute, bind
from gradsync.runtime.devices import Device
from gradsync.runtime.group import Groups
from queued_device import QueuedProcessor
from rank_programs.of_schedules import prepare

Ends = dict[str, np.ndarray]
DENSE_TURNS = 2  # the least that torch's hook takes before it factors
RANKS_OF_FACTORS = (1, 2)
QUEUED = ("wfbp", "without feedback")  # also on a device that queues its work
CASES: dict[str, dict[str, Any]] = {
    "wfbp": {},
    "single": {"schedule": "single"},
    "merged": {"schedule": "mgwfbp", "compressor_options": {"rank": 1}},
    "lanes": {"schedule": "kway"},
    "priority": {"schedule": "priority"},
    "without feedback": {"error_feedback": False},
    "rings": {"collective": "ring"},
    "all of it": {"compressor_options": {"rank": 9}},
}


def low_rank_plan(name: str, ranks: int, momentum: float = small_model.MOMENTUM) -> Plan:
    scheme = Scheme(name=name.replace(" ", "-"), compressor="powersgd", **({"schedule": "wfbp"} | CASES[name]))
    return schemes.plan(scheme, small_model.load(), small_model.COST, ranks, lr=small_model.LR, momentum=momentum)


def of_rank_of_factors(rank: int, ranks: int) -> Plan:
    """The plan that torch's hook is held against: without momentum, since its dense turns would leave some."""
    scheme = Scheme(name="hooked", schedule="single", compressor="powersgd", compressor_options={"rank": rank})
    return schemes.plan(scheme, small_model.load(), small_model.COST, ranks, lr=small_model.LR)


def low_rank_schemes(rank: int, ranks: int) -> dict[str, Ends | str]:
    """Buffers that outlast a turn after training with each, on a processor and on a device that queues."""
    devices: dict[str, Device | None] = {"": None, "queued ": QueuedProcessor()}
    ends: dict[str, Ends | str] = {}
    for label, device in devices.items():
        groups = Groups(device) if device else Groups()
        plans = {name: low_rank_plan(name, ranks) for name in (QUEUED if device else CASES)}
        if not device:
            plans |= {f"hooked {of}": of_rank_of_factors(of, ranks) for of in RANKS_OF_FACTORS}
        for name, plan in plans.items():
            try:
                ends[label + name] = _trained(plan, rank, groups)
            except Exception:  # one that fails must not hide the others
                ends[label + name] = traceback.format_exc()
        groups.close()
    return ends | {f"torch {of}": by_torchs_hook(of, rank, ranks) for of in RANKS_OF_FACTORS}


def _trained(plan: Plan, rank: int, groups: Groups) -> Ends:
    executor, device = prepare(plan, rank, groups), groups.device
    model = small_model.build().to(device.torch_device)
    bind(model, plan, executor.buffers["parameter"])

    def sample(turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = small_model.sample(rank, turn)
        return device.put(images), device.put(labels)

    compute = ModelCompute(small_model.forward(model, rank), sample, queued=device.queued)
    executor.run(small_model.TURNS, compute)
    compute.settle()
    compute.close()
    kept = [name for name in ("parameter", "residual", "right") if name in executor.buffers]
    return {name: executor.buffers[name].cpu().numpy().copy() for name in kept}


def by_torchs_hook(of: int, rank: int, ranks: int) -> Ends:
    """Parameters and what is fed back, by name, after as many turns of DDP with PowerSGD as its own authors have it.

    The hook takes two dense turns, at a learning rate of 0 here, and then the Q that the plan draws.
    """
    model = small_model.build()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    state = PowerSGDState(None, matrix_approximation_rank=of, start_powerSGD_iter=DENSE_TURNS, min_compression_rate=1)
    first = _first_factors(of)
    order: list[str] = []

    def hook(state, bucket):  # without types: DDP takes none that are texts
        if state.iter == DENSE_TURNS:
            order[:] = [names[id(parameter)] for parameter in bucket.parameters()]
            matrices = [first[name] for name in order if name in first]
            state.q_memory_dict[0] = torch.from_numpy(np.concatenate([right for right, _ in matrices]))
            state.p_memory_dict[0] = torch.zeros(sum(left for _, left in matrices), dtype=torch.float64)
        return powerSGD_hook(state, bucket)

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for turn in range(-DENSE_TURNS, small_model.TURNS):
        optimizer.param_groups[0]["lr"] = 0.0 if turn < 0 else small_model.LR
        images, labels = small_model.sample(rank, max(turn, 0))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(images), labels).backward()
        optimizer.step()
    ends = {name: parameter.detach().numpy().reshape(-1).copy() for name, parameter in model.named_parameters()}
    errors = torch.split(state.error_dict[0], [len(ends[name]) for name in order])
    return ends | {f"residual of {name}": error.numpy().copy() for name, error in zip(order, errors, strict=True)}


def _first_factors(of: int) -> dict[str, tuple[np.ndarray, int]]:
    """Name of a matrix -> the Q that the plan draws of it, and the elements of its P."""
    found, place = {}, 0
    for layer in small_model.load().layers:
        if matrix := powersgd.matrix(layer.shape or (), of):
            found[layer.name] = powersgd.drawn(matrix.right, seed=0, place=place), matrix.left
            place += matrix.right
    return found
