"""What waits for what: names that resolve, no wait for what comes later, no race on any element."""

from __future__ import annotations

from collections import defaultdict

from gradsync.check.grid import fail
from gradsync.plan import Plan, Reply, Role, Send


def refuse_waits(plan: Plan, role: Role) -> None:
    """Raises PlanError for a wait that never ends, and for operations that touch the same elements at any time."""
    _waits(plan, role)
    before = _finished_before(role)
    _replies(plan, role, before)
    _races(plan, role, before)


def _waits(plan: Plan, role: Role) -> None:
    position = {op.name: step for step, op in enumerate(role.flat)}
    for step, op in enumerate(role.flat):
        for name in (*op.after, *op.after_previous):
            if name not in position:
                fail(plan, f"{op.name!r} waits for {name!r}, which role {role.name!r} does not have", role, (step,))
        for name in op.after:
            if position[name] >= step:
                problem = f"{op.name!r} waits for {name!r}, which the launch order puts after it: a deadlock"
                fail(plan, problem, role, (step, position[name]))


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


def _replies(plan: Plan, role: Role, before: list[int]) -> None:
    """A reply goes where a message has come from before."""
    position = {op.name: step for step, op in enumerate(role.flat)}
    for step, op in enumerate(role.flat):
        if isinstance(op, Reply) and not before[step] >> position[op.to] & 1:
            problem = f"reply {op.name!r} doesn't wait for the receive-from-any {op.to!r} that tells it where to go"
            fail(plan, problem, role, (step, position[op.to]))


def _races(plan: Plan, role: Role, before: list[int]) -> None:
    """No two operations of a rank touch the same elements, one of them writing, unless one waits for the other."""
    n = len(role.flat)
    accesses: dict[str, list[tuple[int, int, int, bool]]] = defaultdict(list)
    for node in range(len(before)):
        op = role.flat[node % n]
        for refs, writing in ((op.reads, False), (op.writes, True)):
            for ref in refs:
                if not plan.buffer[ref.buffer].shared:
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
                    problem = f"race on {buffer}[{start}:...]: {names}{turn} touch it and neither waits for the other"
                    fail(plan, problem, role, (early % n, late % n))
            live.append(access)
