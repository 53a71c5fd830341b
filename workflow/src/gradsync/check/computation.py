"""The computation of a role: passes of a model, each a forward and a backward over all of its tensors."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gradsync.check.grid import fail
from gradsync.plan import Need, Plan, Ready, Ref, Role


def refuse_computation(plan: Plan, role: Role) -> None:
    """Raises PlanError unless a model can run it: each pass needs all parameters and makes all gradients, once."""
    computing = [(step, op) for step, op in enumerate(role.flat) if isinstance(op, Need | Ready)]
    if not computing:
        return
    if role.until_stopped:
        fail(plan, f"role {role.name!r} serves others until they stop, and computes: only others do", role, (0,))
    if not plan.tensors:
        fail(plan, "it computes gradients and names no tensors", role, (computing[0][0],))
    buffers = {kind: [b.name for b in plan.buffers if b.role == kind and not b.shared] for kind in _KINDS}
    for kind in ("parameter", "gradient"):
        if len(buffers[kind]) != 1:
            fail(plan, f"it computes, and has {len(buffers[kind])} buffers of role {kind} instead of one")
    passes: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    for step, op in computing:
        passes[role.pass_of[op.name]].append((step, op))
    for operations in passes.values():
        _needs(plan, role, [each for each in operations if isinstance(each[1], Need)], operations[0][0], buffers)
        _readies(plan, role, [each for each in operations if isinstance(each[1], Ready)], operations[0][0], buffers)
    _lost(plan, role, buffers["gradient"][0])


_KINDS = ("parameter", "gradient", "statistics")


def _needs(plan: Plan, role: Role, needs: list[tuple[int, Need]], first: int, buffers: dict[str, list[str]]) -> None:
    """Forward waits for all parameters, of the model or of each layer, and says that it changes the statistics."""
    (parameter,) = buffers["parameter"]
    layers = [op.layer for _, op in needs]
    if sorted(layers, key=str) != sorted(plan.tensor if None not in layers else [None], key=str):
        problem = "each pass needs the whole model once, or each of its layers once, before its gradients"
        fail(plan, f"{problem}: {', '.join(str(layer) for layer in layers[:4]) or 'nothing'}", role, (first,))
    changed = {ref for _, op in needs for ref in op.writes}
    whole = {Ref(name, 0, plan.buffer[name].elements) for name in buffers["statistics"]}
    if changed != whole:
        fail(plan, "forward changes the statistics, all of them, and writes nothing else", role, (first,))
    if any(set(op.writes) != whole for op in (needs[0][1], needs[-1][1])):
        problem = "forward changes the statistics from its first need to its last, and both write them"
        fail(plan, problem, role, (first,))
    for step, op in needs:
        wanted = Ref(parameter, *_place(plan, op.layer))
        if op.reads != (wanted,):
            fail(plan, f"{op.name!r}: forward reads {_shown(wanted)}", role, (step,))


def _readies(
    plan: Plan, role: Role, readies: list[tuple[int, Ready]], first: int, buffers: dict[str, list[str]]
) -> None:
    """Backward makes each gradient once, in its place."""
    (parameter,), (gradient,) = buffers["parameter"], buffers["gradient"]
    tensors = [op.tensor for _, op in readies]
    known = {*plan.tensor, None}
    for step, op in readies:
        if op.tensor not in known:
            fail(plan, f"{op.name!r} makes the gradient of {op.tensor!r}, which the plan does not have", role, (step,))
    if None in tensors and len(tensors) > 1:
        problem = f"{readies[0][1].name!r}: what makes all gradients ready writes all of them, and is alone in its pass"
        fail(plan, problem, role, (readies[0][0],))
    missing = next((name for name in plan.tensor if name not in tensors), None)
    if missing is not None and None not in tensors:
        fail(plan, f"missing gradient: no operation makes {missing!r} ready in role {role.name!r}", role, (first,))
    for step, op in readies:
        source, target = (Ref(name, *_place(plan, op.tensor)) for name in (parameter, gradient))
        if op.reads != (source,) or op.writes != (target,):
            problem = f"{op.name!r}: a gradient has its place: backward reads {_shown(source)}, writes {_shown(target)}"
            fail(plan, problem, role, (step,))


def _lost(plan: Plan, role: Role, gradient: str) -> None:
    """No gradient takes the place of one that nothing has used."""
    waiting: dict[str, tuple[int, int]] = {}  # tensor -> its place, written and not read since
    for step, op in enumerate(role.flat):
        if not isinstance(op, Ready):
            read = [ref for ref in op.reads if ref.buffer == gradient]
            waiting = {
                name: place
                for name, place in waiting.items()
                if not any(place[0] < ref.stop and ref.start < place[1] for ref in read)
            }
            continue
        names = [op.tensor] if op.tensor is not None else list(plan.tensor)
        if not op.adds and (lost := next((name for name in names if name in waiting), None)):
            problem = f"lost gradient: {op.name!r} takes the place of that of {lost!r}, which nothing has used"
            fail(plan, problem, role, (step,))
        waiting |= {name: _place(plan, name) for name in names}


def _place(plan: Plan, name: str | None) -> tuple[int, int]:
    """Elements of a tensor; None: of all of them."""
    if name is None:
        return 0, plan.tensors[-1].stop
    return plan.tensor[name].start, plan.tensor[name].stop


def _shown(ref: Ref) -> str:
    return f"{ref.buffer}[{ref.start}:{ref.stop}]"
