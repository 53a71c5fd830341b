"""`gradsync.attach`: a plan carries the gradients of a model that is trained by a loop of one's own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gradsync.attachment import fit, planning, scale
from gradsync.attachment.handle import Attached
from gradsync.attachment.owned import Owned, Planned, Update
from gradsync.attachment.refusal import refuse, together
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.runtime import devices
from gradsync.runtime.compute import bind, bind_statistics
from gradsync.runtime.devices import Device
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.group import CONTROL_SECONDS, Groups
from gradsync.runtime.launch import VARIABLES, is_rank
from gradsync.transforms.messages_alone import by_parts, messages_alone


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: Plan | str | Path,
    *,
    workload: Workload | str | Path | None = None,
    inputs: Any = None,
    all_reduce: str | None = None,
    find_unused_parameters: bool = False,
    broadcast_buffers: bool = True,
    scaler: torch.amp.GradScaler | None = None,
) -> Attached:
    """See `gradsync.attach`."""
    if not dist.is_initialized():
        if not is_rank():
            refuse(f"attach: this is no rank of a launch ({', '.join(VARIABLES)} are not set): start it with torchrun")
        dist.init_process_group("gloo", timeout=timedelta(seconds=CONTROL_SECONDS))
    with together():
        inner = fit.plain(model)
        parameters = fit.trained(inner)
        device = _device(next(iter(parameters.values())))
    with together():
        fit.refuse_different(inner)
        fit.refuse_different_scales(scaler)
    scaling = scaler is not None and scaler.is_enabled()
    with together():
        sources = planning.Sources(workload, inputs, all_reduce, broadcast_buffers)
        whole = planning.plan(plan, sources, inner, optimizer, device)
        fit.refuse_other(whole, inner, parameters, scaled=scaling)
        whole = fit.with_statistics_of(whole, inner)
        alone = None if by_parts(whole) else messages_alone(whole)  # None: the plan must update parameters itself
        if alone is None:
            group, rate = fit.refuse_other_optimizer(whole, optimizer, parameters)
            whole = scale.guarded(whole) if scaling else whole
        if inner is not model and any(getattr(op, "layer", None) for op in whole.roles[0].body):
            raise InputError(
                f"plan {whole.name!r} holds back the forward of single layers, which a compiled module hides: give the "
                "one that was compiled, or take a scheme with update ssgd"
            )
    groups = Groups(device)
    everyone = tuple(range(whole.ranks))
    for lane in ("attach", *(["unused"] if find_unused_parameters else [])):
        groups.add(lane, everyone)
    _alike(inner, groups.of("attach", everyone))
    executor = prepare(whole if alone is None else alone.plan, dist.get_rank(), groups)
    update: Update
    if alone is None:
        bind(inner, whole, executor.buffers[whole.holding("parameter") or ""])
        scaled = scale.Scale(executor, scaler) if scaling and scaler is not None else None
        update = Planned(executor, parameters, optimizer, group, rate, scaled)
    else:
        update = Owned(executor, parameters, optimizer, alone.sums, alone.weight)
    if (name := whole.holding("statistics")) is not None:
        bind_statistics(inner, executor.buffers[name])
    return Attached(model, inner, parameters, executor, groups, update, find_unused_parameters)


def _device(parameter: torch.Tensor) -> Device:
    if parameter.device.type == devices.CPU:
        return devices.PROCESSOR
    device = devices.pick(parameter.device.type)
    if device.index != parameter.device.index:
        raise InputError(
            f"attach: the model lies on {parameter.device}, and this rank's device is {device.torch_device}: move it "
            "there (LOCAL_RANK)"
        )
    return device


@torch.no_grad()
def _alike(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Rank 0's parameters and buffers for all ranks, as DDP begins."""
    for tensor in (*model.parameters(), *model.buffers()):
        value = tensor.detach().contiguous()
        dist.broadcast(value, 0, group=group)
        tensor.detach().copy_(value)
