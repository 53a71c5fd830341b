"""A centre that another one replaces: what it has taken in must be in the other, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradsync.plan import Ref
from gradsync.plan.content import CENTRE, Part, together

if TYPE_CHECKING:
    from gradsync.check.contents import Run


def refuse_lost(run: Run, ref: Ref, rank: int, op: Any, parts: Sequence[Part]) -> None:
    """Raises ContentError if `parts`, which `op` puts in a buffer of a centre, lack gradients that are in it."""
    if run.plan.buffer[ref.buffer].role != "centre":
        return
    held = run.covers[rank][ref.buffer].read(*run.bounds(ref, rank))
    for low, high, (old, new) in together([held, parts]):
        if old.kind == new.kind == CENTRE and (lacking := run.owners(run.holds(old) & ~run.holds(new))):
            names = run.tensors(low + (old.shift or 0), high + (old.shift or 0))
            run.fail(
                f"lost update: {op.name!r} replaces a centre of {names} that rank {min(lacking)}'s gradients have "
                "pulled by one that they have not",
                *(rank, op),
            )
