"""Do a model, its optimizer and a plan go together? What does not is refused by the tensor's name."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gradsync import optimizers
from gradsync.errors import InputError
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.runtime.compute import statistics
from gradsync.runtime.distributed_tensors import is_distributed
from gradsync.runtime.torch_optimizers import named

LOOSE = ("params", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")


def plain(model: nn.Module) -> nn.Module:
    """The module whose parameters are trained: that which was compiled. Raises InputError if it is wrapped."""
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, DistributedDataParallel):
        raise InputError("attach: the model is wrapped in DistributedDataParallel: give the model itself")
    for name, parameter in model.named_parameters():
        if is_distributed(parameter):
            raise InputError(f"attach: parameter {name!r} is sharded already (FSDP): give the model itself")
    return model


def compiled(module: nn.Module) -> bool:
    """Whether it was compiled, by itself or into a module around it: calls inside may pass hooks by."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that have gradients; a tied one under its first name. Raises InputError for what can't be sent."""
    found = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if not found:
        raise InputError("attach: the model has no parameter that requires a gradient: nothing is to be sent")
    devices = {each.device for each in model.parameters()}
    if len(devices) > 1:
        raise InputError(f"attach: the model lies on {', '.join(sorted(map(str, devices)))}: one device per rank")
    first = next(iter(found))
    for name, parameter in found.items():
        if parameter.dtype != found[first].dtype:
            raise InputError(
                f"attach: {first!r} is {found[first].dtype}, {name!r} {parameter.dtype}: plans sum gradients of one "
                "type"
            )
        if not parameter.numel():
            raise InputError(f"attach: parameter {name!r} has no elements, and nothing of it is to be sent: freeze it")
    return found


def refuse_different(model: nn.Module) -> None:
    """Raises InputError on all ranks if the model is not the same on all: its parameters, buffers, what is frozen."""
    own = [(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in model.named_parameters()]
    own += [(f"buffer {name}", tuple(b.shape), str(b.dtype), False) for name, b in model.named_buffers()]
    models: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(models, own)
    for rank, other in enumerate(models):
        for ours, theirs in zip(models[0], other, strict=False):
            if ours != theirs:
                raise InputError(
                    f"attach: the model differs between ranks: {_described(ours)} on rank 0, {_described(theirs)} on "
                    f"rank {rank}: build the same model on all ranks"
                )
        if len(other) != len(models[0]):
            longer = max(other, models[0], key=len)
            raise InputError(
                f"attach: the model differs between ranks: {longer[min(len(other), len(models[0]))][0]!r} is not on "
                f"rank {rank if longer is models[0] else 0}: build the same model on all ranks"
            )


def refuse_different_scales(scaler: torch.amp.GradScaler | None) -> None:
    """Raises InputError on all ranks if their scalers have other scales, or if some have none."""
    scales: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(scales, scaler.get_scale() if scaler is not None and scaler.is_enabled() else None)
    for rank, each in enumerate(scales):
        if each != scales[0]:
            raise InputError(
                f"attach: the loss scale differs between ranks: {scales[0]} on rank 0, {each} on rank {rank}: make the "
                "same GradScaler on all ranks"
            )


def _described(entry: tuple[str, tuple[int, ...], str, bool]) -> str:
    name, shape, dtype, gradient = entry
    frozen = "" if gradient or name.startswith("buffer ") else ", frozen"
    return f"{name!r} {list(shape)} {dtype.removeprefix('torch.')}{frozen}"


def refuse_other(plan: Plan, model: nn.Module, parameters: dict[str, nn.Parameter], *, scaled: bool = False) -> None:
    """Raises InputError for a plan that is not of this model, between these ranks, or a way to train of its own.

    `scaled`: the loop has a loss scale, which the plan may know of.
    """
    again = "measure the layers and plan again for this model"
    if plan.ranks != dist.get_world_size():
        raise InputError(f"plan {plan.name!r} is for {plan.ranks} rank(s), {dist.get_world_size()} are running")
    if len(plan.roles) != 1 or not plan.symmetric:
        raise InputError(
            f"plan {plan.name!r}: its ranks do not all do the same: attach takes plans of synchronous training; "
            "gradsync train runs others"
        )
    if plan.passes != 1:
        raise InputError(
            f"plan {plan.name!r} has {plan.passes} micro-batches in a step: plan without --accumulate, and use "
            "no_sync()"
        )
    if plan.holding("scaler") is not None and not scaled:
        raise InputError(
            f"plan {plan.name!r} has a loss scale of its own: plan with another --precision, and give "
            "attach(.., scaler=) torch's GradScaler"
        )
    gradient = plan.holding("gradient")
    dtype = plan.buffer[gradient].dtype if gradient else "none"
    every = dict(model.named_parameters(remove_duplicate=False))
    for tensor in plan.tensors:
        parameter = parameters.get(tensor.name)
        if parameter is None:
            why = "the model's is frozen" if tensor.name in every else "the model has none"
            if tensor.name in every and every[tensor.name].requires_grad:
                why = "the model has it under another name, as it is tied"
            raise InputError(f"plan {plan.name!r} has a tensor {tensor.name!r}, and {why}: {again}")
        if parameter.numel() != tensor.stop - tensor.start:
            raise InputError(
                f"plan {plan.name!r}: {tensor.name!r} has {tensor.stop - tensor.start} elements, the model's has "
                f"{parameter.numel()}: {again}"
            )
        if str(parameter.dtype).removeprefix("torch.") != dtype:
            raise InputError(
                f"plan {plan.name!r} sums gradients in {dtype}, and {tensor.name!r} is {parameter.dtype}: {again}"
            )
    if missing := [name for name in parameters if name not in plan.tensor]:
        raise InputError(f"plan {plan.name!r} has no tensor {missing[0]!r}, which the model trains: {again}")
    if (name := plan.holding("statistics")) is not None:
        elements = sum(buffer.numel() for buffer in statistics(model))
        if plan.buffer[name].elements != elements:
            raise InputError(
                f"plan {plan.name!r} has {plan.buffer[name].elements} elements of statistics, the model's buffers "
                f"{elements}: {again}"
            )


def with_statistics_of(plan: Plan, model: nn.Module) -> Plan:
    """The plan whose statistics have the type of the model's buffers. Raises InputError if these have several."""
    name = plan.holding("statistics")
    if name is None:
        return plan
    types = {str(buffer.dtype).removeprefix("torch."): key for key, buffer in model.named_buffers() if _floats(buffer)}
    if len(types) > 1:
        one, other, *_ = types
        raise InputError(
            f"attach: buffer {types[one]!r} is {one} and {types[other]!r} is {other}: statistics travel in one type: "
            "take broadcast_buffers=False, or a plan without statistics"
        )
    (dtype,) = types
    buffers = (dataclasses.replace(b, dtype=dtype) if b.name == name else b for b in plan.buffers)
    return dataclasses.replace(plan, buffers=tuple(buffers))


def _floats(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point()


def planned_optimizer(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]) -> Optimizer:
    """The optimizer of a plan that does what torch's does, at rate 1; raises InputError if there is none."""
    group = _only_group(optimizer, parameters)
    kind = type(optimizer).__name__
    for name in optimizers.names():
        if optimizers.get(name).torch[0] == kind:
            wanted = optimizers.settings(name)
            known = {**group, **dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False)), "lr": 1.0}
            return optimizers.get(name, **{key: known[key] for key in wanted if key in known})
    able = ", ".join(optimizers.get(name).torch[0] for name in optimizers.names())
    raise InputError(
        f"attach: no plan updates parameters as {kind} does: take one of {able}, or a plan with update ssgd"
    )


def refuse_other_optimizer(
    plan: Plan, optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]
) -> tuple[dict[str, Any], float]:
    """(the group of the optimizer, the plan's learning rate) for a plan that updates parameters itself.

    Raises InputError unless both update alike.
    """
    group, planned = _only_group(optimizer, parameters), optimizers.of(plan)
    if planned is None:
        raise InputError(f"plan {plan.name!r} updates parameters itself, by no optimizer that torch has")
    kind, settings = planned.torch
    if type(optimizer).__name__ != kind:
        raise InputError(
            f"plan {plan.name!r} updates parameters itself, by {kind}, and the optimizer is "
            f"{type(optimizer).__name__}: plan with --optimizer, or take a scheme with update ssgd"
        )
    if optimizer.state:
        raise InputError(
            f"plan {plan.name!r} updates parameters itself, and the optimizer has begun: attach first, and load the "
            "state that Attached.state_dict() has given"
        )
    reference = named(kind)([torch.nn.Parameter(torch.zeros(1))], **settings).param_groups[0]
    refuse_settings(plan, group, reference)
    return group, float(planned.arguments["lr"])


def refuse_settings(plan: Plan, group: dict[str, Any], reference: dict[str, Any]) -> None:
    """Raises InputError if a setting of the optimizer is not the plan's; its learning rate may be another one."""
    for key, value in reference.items():
        if key not in LOOSE and group.get(key) != value:
            raise InputError(
                f"plan {plan.name!r} updates parameters itself, with {key}={value}, and the optimizer has "
                f"{key}={group.get(key)}: plan again with it, or take a scheme with update ssgd"
            )


def _only_group(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]) -> dict[str, Any]:
    if len(optimizer.param_groups) != 1:
        raise InputError(
            f"attach: a plan that updates parameters itself has one group of them, and the optimizer has "
            f"{len(optimizer.param_groups)}: take a scheme with update ssgd"
        )
    (group,) = optimizer.param_groups
    ours = {id(parameter) for parameter in group["params"]}
    for name, parameter in parameters.items():
        if id(parameter) not in ours:
            raise InputError(f"attach: the optimizer does not have parameter {name!r}, which the plan would update")
    settings: dict[str, Any] = group
    return settings
