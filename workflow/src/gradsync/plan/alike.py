"""Which buffers hold the same on all ranks between two turns, so that one of them can stand for all in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradsync.plan.buffers import WORLD, Ref
from gradsync.plan.operations import Collective, Local, Ready

if TYPE_CHECKING:
    from gradsync.plan.loop import Plan

KEPT = ("parameter", "momentum", "scaler")  # roles; statistics differ from a forward pass on until they are sent
EQUAL = ("all_reduce", "broadcast", "all_gather")  # kinds after which all ranks of a group have the same

Spans = list[tuple[int, int]]


def alike(plan: Plan) -> tuple[str, ...]:
    """Names of the kept buffers whose elements are all equal again at the end of a turn that began so.

    One turn of a role that all ranks share is followed in launch order: gradients and a rank's own pieces are its own,
    what all ranks have summed or gathered is everybody's, and what is computed is the rank's own if an operand was. So
    is a sum of sparse messages, of which each rank adds up its own.
    """
    kept = tuple(buffer.name for buffer in plan.buffers if buffer.role in KEPT and not buffer.mine)
    if not plan.symmetric:
        return ()
    own: dict[str, Spans] = {buffer.name: [] for buffer in plan.buffers}
    for op in plan.roles[0].flat:
        is_own = _makes_its_own(op, kept) or (
            not isinstance(op, Collective) and any(_meets(own[ref.buffer], ref) for ref in (*op.reads, *op.writes))
        )
        for ref in op.writes:
            if is_own or ref.mine:
                own[ref.buffer].append((ref.start, ref.stop))
            else:
                own[ref.buffer] = [part for span in own[ref.buffer] for part in _outside(span, ref)]
    return tuple(name for name in kept if not own[name])


def _makes_its_own(op: Any, kept: tuple[str, ...]) -> bool:
    """Whether what it writes is the rank's own, whatever it reads."""
    match op:
        case Ready():
            return True
        case Collective():
            return op.over != WORLD or op.kind not in EQUAL
        case Local():
            pieces = any(ref.mine for ref in op.reads)
            unsure = op.requires is None and any(ref.buffer in kept for ref in op.writes)
            return pieces or unsure or op.postcondition == "sparse_sum"
    return False


def _meets(spans: Spans, ref: Ref) -> bool:
    return any(start < ref.stop and ref.start < stop for start, stop in spans)


def _outside(span: tuple[int, int], ref: Ref) -> Spans:
    """What of a span lies outside a range."""
    return [(a, b) for a, b in ((span[0], min(span[1], ref.start)), (max(span[0], ref.stop), span[1])) if a < b]
