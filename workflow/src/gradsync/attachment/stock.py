"""Stock DDP that sends the messages of a plan: the same buckets, and a communication hook if they travel narrower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from gradsync.attachment import fit
from gradsync.attachment.refusal import together
from gradsync.check import check
from gradsync.configuration.peers import bucket_cap_mb_list, lost_in_buckets, wire_of
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.plan import Need, Plan

HOOKS = {"float16": default_hooks.fp16_compress_hook, "bfloat16": default_hooks.bf16_compress_hook}


def as_ddp(model: nn.Module, plan: Plan | str | Path, **options: Any) -> DistributedDataParallel:
    """The model in DDP with the plan's buckets; `options` go to DDP.

    They hold from the second step on, if the plan has its layers in autograd's order, as a profile has them.
    Gradients travel in the plan's wire, by DDP's own hook for it, and the optimizer is the caller's. Collective, after
    `init_process_group`. Raises RefusedError on all ranks for a plan that is not of this model, or of which DDP can't
    send something: another collective, several lanes, parts of gradients, forward that waits layer by layer.
    """
    with together():
        plan = _checked(plan)
        inner = fit.plain(model)
        parameters = fit.trained(inner)
        fit.refuse_other(plan, inner, parameters)
        sizes = bucket_cap_mb_list(plan)
        _refuse_lost(plan, next(iter(parameters.values())).device.type)
    wire = wire_of(plan)
    buckets: dict[str, Any] = {"bucket_cap_mb_list": sizes}  # floats, whatever its signature says
    wrapped = DistributedDataParallel(model, **buckets, **options)
    if wire:
        wrapped.register_comm_hook(options.get("process_group"), HOOKS[wire])
    return wrapped


def _checked(plan: Plan | str | Path) -> Plan:
    if not isinstance(plan, Plan):
        plan = Plan.from_json(reading.text(plan, "plan"), str(plan))
    check(plan)
    return plan


def _refuse_lost(plan: Plan, device: str) -> None:
    lost = lost_in_buckets(plan, hooked=True)
    if any(isinstance(op, Need) and op.layer is not None for role in plan.roles for op in role.flat):
        lost.append("forward that waits for its layers one by one is lost: DDP's waits for all gradients")
    if (wire := wire_of(plan)) and wire not in HOOKS:
        lost.append(f"messages in {wire} are lost: DDP has hooks for {' and '.join(HOOKS)}")
    if wire == "bfloat16" and device == "cpu":
        lost.append("messages in bfloat16 are lost: DDP's hook for them needs NCCL")
    if lost:
        raise InputError(f"plan {plan.name!r} can't be sent by DDP: {'; '.join(lost)}: use gradsync.attach")
