"""What a run leaves behind: every gradient has reached its update, and every message and exchange its other side."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import or_
from typing import NoReturn

from gradsync.check.contents import ContentError, Place, Run
from gradsync.plan import Ready
from gradsync.plan.content import together

Pair = tuple[int, int]  # versions of parameters and of a centre
Exchanges = frozenset[tuple[Pair, Place, int]]  # which, where, how often


def refuse_unfinished(run: Run) -> None:
    """Raises ContentError if a gradient of an earlier turn reaches no update, or an exchange has one side."""
    for rank in run.workers:
        _refuse_unused(run, rank)
        _refuse_lost(run, rank)
    _refuse_alone(run)
    for turn, messages in run.encoded_in.items():
        if turn < run.turns - 1 and (lost := messages & run.encoded.keys()):
            rank, step, name = run.encoded[min(lost)]
            raise ContentError(f"missing gradient: what {name!r} encodes reaches no decode", rank, step)
    for low, high, (ours, theirs) in together([run.pairs[side].read(0, run.elements) for side in run.pairs]):
        workers, centres = (_tally(each.key) for each in (ours, theirs))
        if workers != centres:
            _one_sided(run, low, high, ours.key, theirs.key, (workers - centres) or (centres - workers))


def _refuse_unused(run: Run, rank: int) -> None:
    role = run.plan.role_of[rank]
    for op in role.flat:
        if not isinstance(op, Ready):
            continue
        passes = range(role.pass_of[op.name], (run.turns - 1) * role.passes, role.passes)
        wanted = sum(run.token(rank, number) for number in passes)
        for low, high, content in run.uses.read(op.writes[0].start, op.writes[0].stop):
            if wanted & ~reduce(or_, (tokens for tokens, *_ in content.key), 0):
                names = run.tensors(op.writes[0].start + low, op.writes[0].start + high)
                run.fail(f"missing gradient: {names} is made ready and reaches no update", rank, op)


def _refuse_lost(run: Run, rank: int) -> None:
    """A rank computes in the last turn with parameters that hold its own gradients of all turns but the last two."""
    role = run.plan.role_of[rank]
    wanted = sum(1 << number for number in range((run.turns - 2) * role.passes)) * run.token(rank, 0)
    for low, high, content in run.seen[rank, (run.turns - 1) * role.passes].parameters.read(0, run.elements):
        if wanted & ~run.holds(content):
            op = next(op for op in role.flat if isinstance(op, Ready))
            run.fail(
                f"lost update: the parameters of {run.tensors(low, high)} that rank {rank} computes with never have in "
                "them what it found before: its gradients are applied to others, or what they are applied to doesn't "
                "come back",
                *(rank, op),
            )


def _refuse_alone(run: Run) -> None:
    """If all ranks do the same, each computes in the last turn with what every other one has found in the first."""
    if not run.plan.symmetric:
        return
    role = run.plan.roles[0]
    wanted = sum(run.token(rank, number) for rank in run.workers for number in range(role.passes))
    for rank in run.workers:
        for low, high, content in run.seen[rank, (run.turns - 1) * role.passes].parameters.read(0, run.elements):
            if lacking := run.owners(wanted & ~run.holds(content)):
                op = next(op for op in role.flat if isinstance(op, Ready))
                run.fail(
                    f"ranks train apart: the parameters of {run.tensors(low, high)} that rank {rank} computes with "
                    f"never have in them what rank {min(lacking)} found: no message brings it",
                    *(rank, op),
                )


def _tally(exchanges: Exchanges) -> Counter[Pair]:
    """How often a side has made each exchange, whichever ranks have."""
    tally: Counter[Pair] = Counter()
    for pair, _, times in exchanges:
        tally[pair] += times
    return tally


def _one_sided(run: Run, low: int, high: int, workers: Exchanges, centres: Exchanges, alone: Counter[Pair]) -> NoReturn:
    places = [[place for pair, place, _ in side if pair in alone] for side in (workers, centres)]
    rank, step, name = min(places[0] or places[1])
    raise ContentError(
        f"{name!r} pulls {run.tensors(low, high)} with a pair of parameters and centre that the other side of the "
        "exchange never has: one of them changes in between, or the other side is missing",
        rank,
        step,
    )
