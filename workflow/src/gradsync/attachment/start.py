"""`gradsync.attach`: a plan carries the gradients of a model that is trained by a loop of one's own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from gradsync.attachment import auto, fit, planning, scale
from gradsync.attachment.auto import Auto
from gradsync.attachment.handle import ATTACHED, Attached
from gradsync.attachment.owned import Planned, Update, summing
from gradsync.attachment.pilot import Pilot
from gradsync.attachment.refusal import refuse, together
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.runtime import devices, enqueue
from gradsync.runtime.compute import bind
from gradsync.runtime.devices import Device
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.group import CONTROL_SECONDS, Groups
from gradsync.runtime.launch import VARIABLES, is_rank
from gradsync.transforms.messages_alone import by_parts, messages_alone


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: Plan | str | Path | Auto,
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
        if inner in ATTACHED:
            raise InputError("attach: a plan carries this model's gradients already: close() that one first")
        parameters = fit.trained(inner)
        device = _device(next(iter(parameters.values())))
    with together():
        fit.refuse_different(inner)
        fit.refuse_different_scales(scaler)
    scaling = scaler is not None and scaler.is_enabled()
    choosing, all_reduce = auto.asked_for(plan, all_reduce)
    with together():
        sources = planning.Sources(workload, inputs, all_reduce, broadcast_buffers)
        if choosing is None:
            whole = planning.plan(cast("Plan | str | Path", plan), sources, inner, optimizer, device)
        else:
            choosing.refuse()
            whole = auto.starting_plan(inner, parameters, sources)
        fit.refuse_other(whole, inner, parameters, scaled=scaling)
        whole = fit.with_statistics_of(whole, inner)
        owned = not by_parts(whole)  # else the plan must update parameters itself
        if owned:
            messages_alone(whole)
        else:
            group, rate = fit.refuse_other_optimizer(whole, optimizer, parameters)
            whole = scale.guarded(whole) if scaling else whole
        if device.queued:
            enqueue.refuse(whole)
        compiled = inner is not model or any(fit.compiled(each) for each in inner.modules())
        if compiled and any(getattr(op, "layer", None) for op in whole.roles[0].body):
            raise InputError(
                f"plan {whole.name!r} holds back the forward of single layers, which a compiled module hides: give the "
                "one that was compiled, or take a scheme with update ssgd"
            )
    groups = Groups(device)
    everyone = tuple(range(whole.ranks))
    for lane in ("attach", *(["unused"] if find_unused_parameters else [])):
        groups.add(lane, everyone)
    _alike(inner, groups.of("attach", everyone))
    update: Update
    if owned:
        update = summing(whole, parameters, optimizer, groups)
    else:
        executor = prepare(whole, dist.get_rank(), groups)
        bind(inner, whole, executor.buffers[whole.holding("parameter") or ""])
        scaled = scale.Scale(executor, scaler) if scaling and scaler is not None else None
        update = Planned(executor, parameters, optimizer, group, rate, scaled)
    attached = Attached(model, inner, parameters, groups, update, whole, find_unused_parameters)
    if choosing is not None:
        Pilot(attached, choosing, all_reduce)
    return attached


def _device(parameter: torch.Tensor) -> Device:
    if parameter.device.type == devices.CPU:
        return devices.PROCESSOR
    device = devices.pick(parameter.device.type, as_set=True)
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
