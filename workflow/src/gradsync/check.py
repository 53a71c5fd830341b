"""Checks of a plan before anything runs: form, waits, races, deadlocks, gradients that are lost or summed twice.

Every problem is reported with the plan's rank x step grid, the operation at fault marked.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

from gradsync.contributions import LostError, verify
from gradsync.errors import RunError
from gradsync.kernels import KERNELS
from gradsync.plan import (
    COMPUTE,
    DTYPE_BYTES,
    Collective,
    Local,
    Plan,
    Ready,
    RecvAny,
    Ref,
    Reply,
    Role,
    Send,
    SharedAdd,
)
from gradsync.progress import Clock, Event, Progress

GRADIENT = "gradient"
ANYWHERE = ("local", "shared_read", "shared_add")  # on any lane; need and ready compute, all others communicate
POSTCONDITION = {"all_reduce": "sum", "reduce_scatter": "shard", "all_gather": "gather", "broadcast": "copy"}


class PlanError(RunError):
    """A plan that must not run; the message ends with the rank x step grid."""


def check(plan: Plan) -> None:
    """Raises PlanError with the first problem found; a plan that returns can run on any number of turns."""
    _form(plan)
    for role in plan.roles:
        _waits(plan, role)
        _races(plan, role)
        _gradients(plan, role)
    _run_through(plan)


def grid(plan: Plan, at_fault: dict[tuple[int, int], str], columns: int = 6, rows: int = 16) -> str:
    """The rank x step table around the operations at fault, {(rank, step): mark}."""
    ranks = sorted({rank for rank, _ in at_fault})
    ranks = (ranks + [rank for rank in range(plan.ranks) if rank not in ranks])[:rows]
    middle = min((step for _, step in at_fault), default=0)
    longest = max(len(role.flat) for role in plan.roles)
    first = max(0, min(middle - columns // 2, longest - columns))
    steps = range(first, min(first + columns, longest))
    table = [["", *(f"step {step}" for step in steps)]]
    for rank in sorted(ranks):
        body = plan.role_of[rank].flat
        cells = [f"rank {rank}"]
        for step in steps:
            label = f"{body[step].lane}:{body[step].name}" if step < len(body) else ""
            mark = at_fault.get((rank, step))
            cells.append(f">>{label} {mark}<<" if mark else label)
        table.append(cells)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    if plan.ranks > len(ranks):
        lines.append(f"({plan.ranks - len(ranks)} more ranks)")
    return "\n".join(lines)


def _fail(plan: Plan, problem: str, role: Role | None = None, steps: tuple[int, ...] = (), mark: str = "!") -> None:
    at_fault = {(rank, step): mark for rank in (role.ranks if role else ()) for step in steps}
    picture = f"\n{grid(plan, at_fault)}" if at_fault else ""
    raise PlanError(f"plan {plan.name!r}: {problem}{picture}")


def _form(plan: Plan) -> None:
    ranks = [rank for role in plan.roles for rank in role.ranks]
    if plan.ranks < 1 or sorted(ranks) != list(range(plan.ranks)):
        _fail(plan, f"its roles must give each of its {plan.ranks} ranks (0 to {plan.ranks - 1}) one role")
    for buffer in plan.buffers:
        if buffer.dtype not in DTYPE_BYTES:
            _fail(plan, f"buffer {buffer.name!r}: unknown dtype {buffer.dtype!r} (known: {', '.join(DTYPE_BYTES)})")
    if len(plan.buffer) != len(plan.buffers):
        _fail(plan, "two buffers have the same name")
    if len({role.name for role in plan.roles}) != len(plan.roles):
        _fail(plan, "two roles have the same name")
    position = 0
    for tensor in plan.tensors:
        if tensor.start != position or tensor.stop <= tensor.start:
            _fail(plan, f"tensor {tensor.name!r}: tensors must follow one another without gap from element 0")
        position = tensor.stop
    for role in plan.roles:
        if not role.flat:
            _fail(plan, f"role {role.name!r} has no operations")
        names: set[str] = set()
        for step, op in enumerate(role.flat):
            if op.name in names:
                _fail(plan, f"role {role.name!r}: two operations are named {op.name!r}", role, (step,))
            names.add(op.name)
            for ref in (*op.reads, *op.writes):
                _bounds(plan, role, step, ref)
            if isinstance(op, Local) and op.kernel not in KERNELS:
                _fail(plan, f"{op.name!r}: unknown kernel {op.kernel!r} (known: {', '.join(KERNELS)})", role, (step,))
            _lane_and_collective(plan, role, step)
            for peer in _peers(op):
                if not 0 <= peer < plan.ranks:
                    _fail(plan, f"{op.name!r} names rank {peer}, the plan has {plan.ranks}", role, (step,))
            if isinstance(op, Reply) and not any(
                isinstance(other, RecvAny) and other.name == op.to for other in role.flat[:step]
            ):
                _fail(plan, f"reply {op.name!r}: no receive-from-any {op.to!r} before it", role, (step,))


def _lane_and_collective(plan: Plan, role: Role, step: int) -> None:
    """What the executor takes for granted of an operation's lane and of a collective's ranks, levels and ranges."""
    op = role.flat[step]
    if op.verb not in ANYWHERE and (op.lane == COMPUTE) != (op.verb in ("need", "ready")):
        where = f"only lane {COMPUTE!r} does" if op.lane != COMPUTE else "only the other lanes do"
        _fail(plan, f"{op.name!r}: a {op.verb} on lane {op.lane!r}: {where} that", role, (step,))
    if not isinstance(op, Collective):
        return
    if op.postcondition != POSTCONDITION[op.kind]:
        _fail(
            plan,
            f"{op.name!r}: the postcondition of {op.kind} is {POSTCONDITION[op.kind]!r}, not {op.postcondition!r}",
            role,
            (step,),
        )
    members = {*role.ranks, *((op.root,) if op.kind == "broadcast" else ())}
    if op.ranks and not members <= set(op.ranks):
        problem = f"{op.name!r} is for ranks {op.ranks}: its root and the ranks of its role must be among them"
        _fail(plan, problem, role, (step,))
    n = len(op.ranks) or plan.ranks
    if op.shape and (min(op.shape) < 1 or prod(op.shape) != n):
        _fail(plan, f"{op.name!r} is for {n} ranks, not for levels of {' x '.join(map(str, op.shape))}", role, (step,))
    sizes = [[ref.stop - ref.start for ref in refs] for refs in (op.reads, op.writes)]
    if sizes[0] != sizes[1] or any(ref.mine for ref in (*op.reads, *op.writes)):
        _fail(plan, f"{op.name!r}: a collective reads and writes whole ranges of equal lengths", role, (step,))


def _peers(op: Any) -> tuple[int, ...]:
    match op.verb:
        case "send":
            return (op.to,)
        case "recv":
            return (op.source,)
        case "recv_any":
            return tuple(op.sources)
        case "collective":
            return (*op.ranks, op.root)
    return ()


def _bounds(plan: Plan, role: Role, step: int, ref: Ref) -> None:
    op = role.flat[step]
    buffer = plan.buffer.get(ref.buffer)
    if buffer is None:
        _fail(plan, f"{op.name!r} uses buffer {ref.buffer!r}, which the plan does not have", role, (step,))
    elif not 0 <= ref.start <= ref.stop <= buffer.elements:
        _fail(
            plan,
            f"{op.name!r} uses {ref.buffer}[{ref.start}:{ref.stop}], the buffer has {buffer.elements} elements",
            role,
            (step,),
        )


def _waits(plan: Plan, role: Role) -> None:
    position = {op.name: step for step, op in enumerate(role.flat)}
    for step, op in enumerate(role.flat):
        for name in (*op.after, *op.after_previous):
            if name not in position:
                _fail(plan, f"{op.name!r} waits for {name!r}, which role {role.name!r} does not have", role, (step,))
        for name in op.after:
            if position[name] >= step:
                _fail(
                    plan,
                    f"{op.name!r} waits for {name!r}, which the launch order puts after it: a deadlock",
                    role,
                    (step, position[name]),
                )


def _finished_before(role: Role, turns: int = 2) -> list[int]:
    """For each operation of `turns` turns a bit set of those that have finished before it starts."""
    n = len(role.flat)
    position = {op.name: step for step, op in enumerate(role.flat)}
    before = [0] * (turns * n)
    for turn in range(turns):
        last: dict[str, int] = {}
        if turn:
            last = {op.lane: (turn - 1) * n + step for step, op in enumerate(role.flat)}
        for step, op in enumerate(role.flat):
            node = turn * n + step
            bits = 0
            if op.lane in last:
                previous = last[op.lane]
                posted_only = isinstance(role.flat[previous % n], Send | Reply)
                bits |= before[previous] | (0 if posted_only else 1 << previous)
            waits = [turn * n + position[name] for name in op.after]
            if turn:
                waits += [(turn - 1) * n + position[name] for name in op.after_previous]
            for wait in waits:
                bits |= before[wait] | 1 << wait
            before[node] = bits
            last[op.lane] = node
    return before


def _races(plan: Plan, role: Role) -> None:
    """No two operations of a rank touch the same elements, one of them writing, unless one waits for the other."""
    n = len(role.flat)
    before = _finished_before(role)
    accesses: dict[str, list[tuple[int, int, int, bool]]] = defaultdict(list)
    for node in range(2 * n):
        op = role.flat[node % n]
        for refs, writing in ((op.reads, False), (op.writes, True)):
            for ref in refs:
                if ref.stop > ref.start and not plan.buffer[ref.buffer].shared:
                    accesses[ref.buffer].append((ref.start, ref.stop, node, writing))
    for buffer, found in accesses.items():
        found.sort()
        live: list[tuple[int, int, int, bool]] = []
        for access in found:
            start, _, node, writing = access
            live = [other for other in live if other[1] > start]
            for _, _, other, other_writing in live:
                early, late = min(node, other), max(node, other)
                if (writing or other_writing) and early != late and not before[late] >> early & 1:
                    names = f"{role.flat[early % n].name!r} and {role.flat[late % n].name!r}"
                    turn = " (of the next turn)" if late // n != early // n else ""
                    _fail(
                        plan,
                        f"race on {buffer}[{start}:...]: {names}{turn} touch it and neither waits for the other",
                        role,
                        (early % n, late % n),
                    )
            live.append(access)


def _gradients(plan: Plan, role: Role) -> None:
    """Every gradient is made ready and used; whether its sum is whole, `contributions` tells."""
    ready = [op for op in role.flat if isinstance(op, Ready)]
    if not ready:
        return
    _passes(plan, role)
    produced = {op.tensor for op in ready}
    for tensor in plan.tensors:
        if tensor.name not in produced and None not in produced:
            _fail(plan, f"missing gradient: no operation makes {tensor.name!r} ready in role {role.name!r}", role, (0,))
    used = [
        (ref.start, ref.stop)
        for op in role.flat
        if not isinstance(op, Collective)
        for ref in op.reads
        if ref.buffer == GRADIENT
    ]
    used.sort()
    position = 0
    for start, stop in used:
        if start > position:
            break
        position = max(position, stop)
    if position < plan.tensors[-1].stop:
        tensor = next(tensor for tensor in plan.tensors if tensor.stop > position)
        step = next(i for i, op in enumerate(role.flat) if isinstance(op, Ready) and op.tensor in (tensor.name, None))
        _fail(plan, f"missing gradient: {tensor.name!r} is made ready and nothing uses it", role, (step,))


def _passes(plan: Plan, role: Role) -> None:
    """What makes all gradients ready is alone in its pass; none takes the place of one that nothing has used."""
    whole = plan.tensors[-1].stop
    waiting: dict[str, tuple[int, int]] = {}  # tensor -> its range; written, and not read since
    for step, op in enumerate(role.flat):
        if not isinstance(op, Ready):
            for ref in op.reads:
                if ref.buffer == GRADIENT and waiting:
                    waiting = {
                        name: (start, stop)
                        for name, (start, stop) in waiting.items()
                        if stop <= ref.start or ref.stop <= start
                    }
            continue
        if op.tensor is None:
            others = [name for name, number in role.pass_of.items() if number == role.pass_of[op.name]]
            if [ref[1:3] for ref in op.writes] != [(0, whole)] or any(
                isinstance(other, Ready) and other is not op and other.name in others for other in role.flat
            ):
                problem = f"{op.name!r}: what makes all gradients ready writes all of them, and is alone in its pass"
                _fail(plan, problem, role, (step,))
        names = [op.tensor] if op.tensor is not None else list(plan.tensor)
        if not op.adds and (lost := next((name for name in names if name in waiting), None)):
            problem = f"lost gradient: {op.name!r} takes the place of that of {lost!r}, which nothing has used"
            _fail(plan, problem, role, (step,))
        waiting |= {name: (plan.tensor[name].start, plan.tensor[name].stop) for name in names if name in plan.tensor}


def _run_through(plan: Plan) -> None:
    """Two turns without time: everything must finish, every message be received, every sum be whole."""
    if not plan.symmetric:
        for role in plan.roles:
            for op in role.flat:
                if isinstance(op, SharedAdd) and not plan.buffer[op.writes[0].buffer].shared:
                    _fail(plan, f"{op.name!r}: shared_add to {op.writes[0].buffer!r}, which is not a shared buffer")
    progress = Progress(plan, 2, Clock(), (0,) if plan.symmetric else None)
    events = _stuck(plan, progress, "deadlock")
    try:
        verify(plan, events, progress.ranks, last_turn=1)
    except LostError as lost:
        _fail(plan, lost.problem, plan.role_of[lost.rank], (lost.step,))
    for (source, to, tag), messages in progress.inbox.items():
        if messages:
            role = plan.role_of[source]
            steps = tuple(step for step, op in enumerate(role.flat) if isinstance(op, Send | Reply) and op.tag == tag)
            _fail(
                plan,
                f"unmatched send: rank {to} never receives {len(messages)} message(s) of rank {source} (tag {tag})",
                role,
                steps,
            )
    if any(isinstance(op, Send | Reply) for role in plan.roles for op in role.flat):
        # a plan that is through with messages waiting in between can still hang where sends wait for their receives
        progress = Progress(plan, 2, Clock(), rendezvous=True)
        _stuck(plan, progress, "deadlock (a send is finished only when it is received)")


def _stuck(plan: Plan, progress: Progress, what: str) -> list[Event]:
    """Runs `progress` and gives its events; fails with what each rank waits at where it does not come to an end."""
    outcome = progress.run()
    if not outcome.stuck:
        return outcome.events
    first: dict[int, tuple[int, int]] = {}
    for rank, turn, index in outcome.stuck:
        if (rank, turn, index) in progress.started and (rank not in first or (turn, index) < first[rank]):
            first[rank] = (turn, index)
    waiting = ", ".join(
        f"rank {rank} at {plan.role_of[rank].flat[index].name!r}" for rank, (_, index) in sorted(first.items())[:4]
    )
    picture = grid(plan, {(rank, index): "waits" for rank, (_, index) in first.items()})
    raise PlanError(f"plan {plan.name!r}: {what}: {waiting or 'nothing can start'}\n{picture}")
