"""Is a changed plan refused, or the same by oracle, simulator and real ranks? Anything else is a miss.

A plan that `check` accepts must come to its end in the oracle, in the simulator and spelled out, and must have the
values of the plan that it was changed from: what was changed was then of no consequence.
"""

from __future__ import annotations

import dataclasses
import traceback
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import tiny_plans as tiny
from gradsync.check import PlanError, check
from gradsync.collectives import POSTCONDITION
from gradsync.costs import Linear, Network
from gradsync.engine.oracle import evaluate, of_rank
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Local, Plan, Recv, RecvAny, SharedAdd
from gradsync.rounds.lowering import lowered
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.step import Step
from tiny_workloads import workload
from waiting import HANGS_SECONDS

TURNS = 4
LOSS_SCALE = 1024.0  # in the beginning
KEPT = ("parameter", "momentum", "residual", "centre", "state")  # roles of buffers that are compared
ORDERED = ("server", "served", "hogwild", "hogwild by layer 3", "hogwild by layer 3, unlocked")
ENOUGH = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1, "int64": 0, "int32": 0, "uint8": 0}
REFUSED, HARMLESS, MISSED = "refused", "harmless", "missed"

Values = list[dict[str, np.ndarray]]


@dataclass
class Verdict:
    """What became of a changed plan; `why` says what was missed, or why it was refused."""

    kind: str
    why: str = ""
    run: bool = False  # on real ranks too
    plan: Plan | None = field(default=None, repr=False)


def pull_of(fixed: bool) -> Any:
    """What makes gradients; if ranks share memory, only those that don't depend on it have one right sum."""
    return tiny.fixed_pull if fixed else tiny.pull


def first(plan: Plan) -> dict[str, np.ndarray]:
    """What buffers hold at the beginning."""
    return {
        buffer.name: tiny.start(buffer.elements) if buffer.role != "scaler" else np.array([LOSS_SCALE, 0.0, 0.0])
        for buffer in plan.buffers
        if buffer.role in ("parameter", "centre", "state", "scaler")
    }


def judged(base_name: str, base: Plan, plan: Plan, changes: list[str], pools: Any = None) -> Verdict:
    """The verdict on `plan`, changed from `base`; `pools`: number of ranks -> real ranks (None: without)."""
    try:
        plan = Plan.from_json(plan.to_json())
        check(plan)
    except (PlanError, InputError) as error:
        return Verdict(REFUSED, str(error).splitlines()[0], plan=plan)
    except Exception:
        return Verdict(MISSED, f"check: {traceback.format_exc(limit=-3)}", plan=plan)
    try:
        why = _alone(base_name, base, plan, changes)
    except Exception:
        why = traceback.format_exc(limit=-3)
    if why:
        return Verdict(MISSED, why, plan=plan)
    if (
        pools is None
        or plan.of_bytes
        or any(buffer.dtype == "uint8" and buffer.role in KEPT for buffer in plan.buffers)
    ):
        return Verdict(HARMLESS, plan=plan)
    why = _real(plan, pools[plan.ranks])
    return Verdict(MISSED if why else HARMLESS, why, True, plan)


def _fixed(plan: Plan) -> bool:
    return any(buffer.shared for buffer in plan.buffers)


def _alone(base_name: str, base: Plan, plan: Plan, changes: list[str]) -> str:
    """What oracle, simulator or the plan spelled out make of it that is wrong; empty if all is well."""
    if plan.of_bytes:
        return _simulated(plan)
    ours = _evaluated(plan)
    _simulated(plan)
    whole = lowered(plan)
    check(whole)
    ordered = base_name in ORDERED or any(isinstance(op, RecvAny) for role in plan.roles for op in role.flat)
    if not ordered:
        spelled = _evaluated(whole)
        if different := _different(plan, ours, spelled):
            return f"spelled out it has other values: {different}"
    if (
        not _steps(base)
        or ordered
        or any(change.startswith("arguments") for change in changes)
        or plan.tensors != base.tensors
        or _steps(plan) != _steps(base)
    ):
        return ""
    theirs = _reference(base)
    if plan.holding("scaler") is not None and base.holding("scaler") is None:
        ours = _evaluated(
            plan, scale=LOSS_SCALE
        )  # whoever takes a loss scale out of all gradients has multiplied by it
    if _encoders(plan) - _encoders(base):
        return ""  # another one sends other elements: that is what the plan asks for
    if _selects(plan) and _types(plan) != _types(base):
        return ""  # of elements that are as large as each other after rounding another one is sent
    if different := _different(base, ours, theirs, max(_enough(plan), _enough(base))):
        return f"other values than before the change: {different}"
    return ""


def _simulated(plan: Plan) -> str:
    """Raises if it can't be simulated; what trains nothing has no workload to be timed on."""
    if not plan.tensors:
        return ""
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    names = [tensor.name for tensor in plan.tensors]
    ones = [1.0] * len(sizes)
    load = workload(sizes, ones, forward=1.0, update=0.1, forwards=ones, dtype="float64", names=names)
    kinds = [*COSTS, *(f"{kind}@{axis}" for kind in COSTS for axis in plan.mesh.places)]
    simulate(plan, load, Network({kind: Linear(0.5, 0.25) for kind in kinds}), turns=3)
    return ""


def _steps(plan: Plan) -> list[int]:
    """Passes of each rank in a turn; empty for a plan that trains nothing, whose values mean nothing either."""
    passes = [plan.role_of[rank].passes for rank in range(plan.ranks)]
    return passes if any(passes) else []


COSTS = (*POSTCONDITION, "send")


@cache
def _reference_of(text: str) -> Values:
    return _evaluated(Plan.from_json(text))


def _reference(plan: Plan) -> Values:
    return _reference_of(plan.to_json())


def _enough(plan: Plan) -> float:
    """How far values may lie apart: by the digits of the shortest type that any of them goes through."""
    return max(ENOUGH[buffer.dtype] for buffer in plan.buffers)


def _selects(plan: Plan) -> bool:
    """Whether it sends some elements alone."""
    return any(isinstance(op, Local) and op.kernel == "encode_exact_topk" for role in plan.roles for op in role.flat)


def _encoders(plan: Plan) -> set[str]:
    """The kernels that encode something."""
    return {
        op.kernel for role in plan.roles for op in role.flat if isinstance(op, Local) and op.kernel[:7] == "encode_"
    }


def _types(plan: Plan) -> set[tuple[str, str]]:
    return {(buffer.name, buffer.dtype) for buffer in plan.buffers}


def _evaluated(plan: Plan, arrivals: dict[tuple[int, int, str], int] | None = None, scale: float = 1.0) -> Values:
    """What the oracle says; gradients are those of a loss that is multiplied by `scale`."""
    pull = pull_of(_fixed(plan))

    def scaled(rank: int, number: int, parameter: np.ndarray) -> np.ndarray:
        return scale * pull(rank, number, parameter)

    gradient = pull if scale == 1.0 else scaled
    return _whole(plan, evaluate(plan, TURNS, gradient, first(plan), arrivals=arrivals))


def _whole(plan: Plan, values: Values) -> Values:
    """The values with shards in the place that they have in the whole buffer, which is zero elsewhere."""
    wholes = []
    for rank, own in enumerate(values):
        wholes.append(dict(own))
        for buffer in plan.buffers:
            if buffer.mine:
                whole = np.zeros(buffer.elements, own[buffer.name].dtype)
                for held in plan.shards.held(buffer.name, rank):
                    there = held.at, held.at + held.stop - held.start
                    whole[held.start : held.stop] = own[buffer.name][slice(*there)]
                wholes[-1][buffer.name] = whole
    return wholes


def _different(plan: Plan, ours: Values, theirs: Values, enough: float = 0.0) -> str:
    """Where parameters, or what else outlasts a turn, differ."""
    differences, enough = [], enough or _enough(plan)
    for buffer in plan.buffers:
        if buffer.role not in KEPT:
            continue
        for rank, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if not _touched(plan, rank, buffer.name):
                continue  # another operation may have it for something else
            if buffer.name not in one:
                differences.append((rank, buffer.name, "missing"))
            elif not _same(one[buffer.name], other[buffer.name], enough):
                differences.append((rank, buffer.name, str(one[buffer.name])[:60], str(other[buffer.name])[:60]))
    return str(differences[:4]) if differences else ""


def _touched(plan: Plan, rank: int, buffer: str) -> bool:
    """Whether the rank has anything to do with a buffer."""
    return any(ref.buffer == buffer for op in plan.role_of[rank].flat for ref in (*op.reads, *op.writes))


def _same(one: np.ndarray, other: np.ndarray, enough: float) -> bool:
    if one.shape != other.shape:
        return False
    return np.allclose(one.astype(float), other.astype(float), rtol=enough, atol=enough, equal_nan=True)


def _real(plan: Plan, pool: Any) -> str:
    ran = pool.run(plan.to_json(), TURNS, _fixed(plan), HANGS_SECONDS)
    if ran.fault:
        return f"real ranks: {ran.fault}"
    if any(isinstance(op, SharedAdd) and not op.locked for role in plan.roles for op in role.flat):
        return ""  # of two that add at the same time one may be lost: that is what the plan asks for
    arrivals = ran.arrivals if any(isinstance(op, RecvAny) for role in plan.roles for op in role.flat) else None
    expected = _evaluated(plan, arrivals)
    if _fixed(plan):  # what a rank reads of shared memory depends on who was there before; what all have added doesn't
        kept = dataclasses.replace(plan, buffers=tuple(buffer for buffer in plan.buffers if buffer.shared))
    else:
        kept = plan
    different = _different(kept, _whole(plan, ran.values), expected)
    return f"real ranks have other values than the oracle: {different}" if different else ""


def executed(text: str, turns: int, fixed: bool, rank: int, groups: Groups) -> tuple[dict[str, Any], dict[Any, int]]:
    """On one of the real ranks: the values of its buffers and the sources of its receives."""
    plan = Plan.from_json(text)
    executor = Executor(plan, rank, groups)
    begin = first(plan)
    for name, value in begin.items():
        own = of_rank(plan, plan.buffer[name], rank, value)
        executor.buffers[name].copy_(torch.from_numpy(own).to(executor.buffers[name].dtype))
    dist.barrier()  # shared buffers have their first values
    executor.run(turns, _compute(executor, pull_of(fixed)))
    dist.barrier()
    values = {name: value.double().numpy().copy() for name, value in executor.buffers.items()}
    receives = {op.name for op in executor.body if isinstance(op, Recv | RecvAny)}
    sources = {
        (rank, span.turn, span.operation): span.source
        for span in executor.spans
        if span.operation in receives and span.source is not None
    }
    return values, sources


def _compute(executor: Executor, pull: Any) -> Any:
    parameter = executor.plan.holding("parameter") or ""

    def compute(number: int, step: Step) -> None:
        for layer in step.needs:
            step.need(layer)
        gradient = torch.from_numpy(
            np.asarray(pull(executor.rank, number, executor.buffers[parameter].double().numpy()))
        )
        step.backward()
        for tensor in executor.plan.tensors[::-1]:  # not the order of the plan: that must not matter
            step.ready(tensor.name, gradient[tensor.start : tensor.stop])

    return compute
