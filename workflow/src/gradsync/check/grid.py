"""A plan that must not run, and the picture of the place at fault: the rank x step grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from gradsync.errors import RunError
from gradsync.plan import Plan, Role

LONGEST_LABEL = 60  # characters of a cell: names may be as long as a page, and every rank has them


class PlanError(RunError):
    """A plan that must not run; the message ends with the rank x step grid. `at_fault`: {(rank, step): mark}."""

    def __init__(self, plan: Plan, problem: str, at_fault: Mapping[tuple[int, int], str] | None = None):
        picture = f"\n{grid(plan, at_fault)}" if at_fault else ""
        super().__init__(f"plan {plan.name!r}: {problem}{picture}")
        self.problem, self.at_fault = problem, dict(at_fault or {})


def fail(plan: Plan, problem: str, role: Role | None = None, steps: Iterable[int] = ()) -> NoReturn:
    """Raises PlanError that marks these steps of all ranks of a role."""
    ranks = role.ranks if role else ()
    raise PlanError(plan, problem, {(rank, step): "!" for step in steps for rank in ranks})


def grid(plan: Plan, at_fault: Mapping[tuple[int, int], str], columns: int = 6, rows: int = 16) -> str:
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
            label = label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 3]}..."
            mark = at_fault.get((rank, step))
            cells.append(f">>{label} {mark}<<" if mark else label)
        table.append(cells)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    if plan.ranks > len(ranks):
        lines.append(f"({plan.ranks - len(ranks)} more ranks)")
    return "\n".join(lines)
