"""What buffers hold after a collective: what each kind of it reads, sums and writes, on every rank of its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradsync.engine.progress import Event
from gradsync.plan import Collective, Ref, piece
from gradsync.plan.content import RATIO, UNSET, Part, Parts, cut, together

if TYPE_CHECKING:
    from gradsync.check.contents import Run


def follow(run: Run, op: Collective, event: Event) -> None:
    """All ranks of a group at once, when the first of them has finished; raises ContentError."""
    everyone = run.plan.group(op, event.rank)
    key = (op.name, event.turn, everyone)
    if key in run.done:
        return
    run.done.add(key)
    ops = {rank: run.op[run.plan.role_of[rank].name][op.name] for rank in everyone}
    exchanged: list[tuple[int, Ref, Sequence[Part]]] = []  # written when all ranks have been read
    for i in range(len(op.writes)):
        first, last = run.bounds(op.writes[i], event.rank)
        length = last - first
        if not length:
            continue
        pieces = [piece(0, length, place, len(everyone)) for place in range(len(everyone))]

        def read(rank: int, part: tuple[int, int] | None = None, i: int = i) -> Parts:
            return run.get(ops[rank].reads[i], rank, ops[rank], part)

        def gathered(taken: Sequence[tuple[int, int]], pieces: Sequence[tuple[int, int]] = pieces) -> Parts:
            """Of each rank the part that is taken, in the place of its piece."""
            whole: Parts = []
            for rank, (first, last), (start, _) in zip(everyone, taken, pieces, strict=True):
                parts = read(rank, (first, last)) if last > first else []
                whole += [Part(part.start + start, part.stop + start, part.content.moved(-start)) for part in parts]
            return whole

        if op.kind == "all_to_all":
            for rank, own in zip(everyone, pieces, strict=True):
                ref = ops[rank].writes[i]
                whole = gathered([own] * len(everyone))
                held = run.taken(ref, run.bounds(ref, rank)[0], whole, rank, ops[rank])
                exchanged.append((rank, ref, held))
            continue
        if op.kind == "all_gather":
            whole = gathered(pieces)
        elif op.kind == "broadcast":
            whole = read(run.plan.root(op, event.rank))
        else:
            whole = run.sum([read(rank) for rank in everyone], event.rank, ops[event.rank], op.reads[i])
        if op.kind == "all_gather" and any(part.content.kind == RATIO for part in whole):
            _refuse_twice(run, op, ops, i, whole, pieces)
        taken: dict[Ref, Sequence[Part]] = {}  # once for all ranks that write the same
        for rank, (start, stop) in zip(everyone, pieces, strict=True):
            ref = ops[rank].writes[i]
            if ref not in taken:
                taken[ref] = run.taken(ref, run.bounds(ref, rank)[0], whole, rank, ops[rank])
            held = taken[ref]
            if op.kind == "reduce_scatter":
                outside = [Part(a, b, UNSET) for a, b in ((0, start), (stop, length)) if b > a]
                held = sorted([*cut(held, start, stop), *outside])
            if op.kind == "reduce" and rank != run.plan.root(op, rank):
                held = [Part(0, length, UNSET)]
            run.keep(ref, rank, ops[rank], held)
    for rank, ref, held in exchanged:
        run.keep(ref, rank, ops[rank], held)


def _refuse_twice(
    run: Run, op: Collective, ops: dict[int, Collective], number: int, whole: Parts, pieces: list[tuple[int, int]]
) -> None:
    """Raises if a rank has computed what it gets from another: ratios are dealt, so that nobody does."""
    for place, (rank, each) in enumerate(ops.items()):
        held = run.covers[rank][each.writes[number].buffer].read(*run.bounds(each.writes[number], rank))
        for low, high, (ours, theirs) in together([held, whole]):
            outside = low < pieces[place][0] or high > pieces[place][1]
            if outside and low < high and ours == theirs and ours.kind == RATIO:
                owner = next(i for i, (start, stop) in enumerate(pieces) if start <= low < stop)
                run.fail(
                    f"{op.name!r} brings rank {rank} a {ours.kind} that it has computed itself, of rank "
                    f"{list(ops)[owner]}: deal each to one rank",
                    *(rank, each),
                )
