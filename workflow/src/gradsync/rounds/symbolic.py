"""Symbolic check of a collective: which ranks' contributions each piece of each rank holds, round by round.

A piece of a rank is a set of ranks, held as bits; before the first round it is the rank itself. Adding is the union of
sets that have no rank in common, replacing is replacing. What is sent is what was there before the round. An all-reduce
ends with every rank's contribution in every piece of every rank, each exactly once; a reduce-scatter with all of them
in piece r of rank r, a reduce with all of them in every piece of the root. An all-gather begins with piece r on rank r
alone, a broadcast with all pieces on the root alone, and both end with them on every rank.

In an all-to-all pieces change places: each is a set of (rank, piece), a bit for each piece of each rank. It ends with
piece d of rank r in the place of piece r of rank d.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from gradsync import collectives
from gradsync.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    POSTCONDITION,
    REDUCE,
    REDUCE_SCATTER,
    SUMS,
    Round,
    Shape,
    bml,
)
from gradsync.errors import InputError, RunError

MOST_BYTES = 1 << 30  # of all sets; a round needs about three times as much in addition


@dataclass(frozen=True)
class State:
    """What every rank holds. Bit r of piece p of rank q is set if r's contribution is in it.

    `bits` is of 64-bit words, the first ranks in the lowest bits of the first word.  # (ranks, pieces, words)
    """

    shape: Shape
    bits: np.ndarray

    def contributors(self, rank: int, piece: int) -> list[int]:
        """The ranks whose contributions are in a piece of `rank`."""
        return _ranks(self.bits[rank, piece])


def verify(
    name: str,
    shape: Shape,
    root: int = 0,
    watch: Callable[[int, int], None] | None = None,
    kind: str = ALL_REDUCE,
    chunks: int | None = None,
) -> None:
    """Run a collective of that kind symbolically and hold it to its postcondition.

    `chunks`: into how many a pipeline cuts the message; None: the collective's own number.

    Raises RunError that names round (from 1), rank and piece if it fails, InputError for a shape that it can't serve or
    that is too large to be checked. `watch` gets, after each round, how many rounds and transfers are done.
    """
    collectives.refuse(name, shape, kind)
    whole = ALL_TO_ALL if kind == ALL_TO_ALL else ALL_REDUCE  # what the file describes
    if (declared := collectives.get(name).POSTCONDITION) != POSTCONDITION[whole]:
        raise InputError(
            f"collective {name!r} declares the postcondition {declared!r}: only {POSTCONDITION[whole]!r} can be checked"
        )
    transfers = 0
    for rounds, step, end in _run(name, shape, root, kind, chunks):  # noqa: B007  the last ones are the end
        transfers += len(step.source) if step else 0
        if watch:
            watch(rounds, transfers)
    if kind not in SUMS:
        _refuse_other_pieces(end, kind, root, f"{_where(name, shape)}: after round {rounds}, the last")
        return
    short = _size(end.bits) < prod(shape)
    if kind == REDUCE_SCATTER:
        short &= np.eye(*short.shape, dtype=np.bool_)
    elif kind == REDUCE:
        short[np.arange(len(short)) != root] = False
    if (incomplete := np.argwhere(short)).size:
        rank, piece = map(int, incomplete[0])
        missing = sorted(set(range(prod(shape))) - set(end.contributors(rank, piece)))
        raise RunError(
            f"{_where(name, shape)}: after round {rounds}, the last, rank {rank} lacks the contribution of "
            f"{_some(missing)} in piece {piece} ({len(incomplete)} incomplete piece(s) in all)"
        )


def _refuse_other_pieces(end: State, kind: str, root: int, where: str) -> None:
    """Raises RunError unless every rank has the pieces that such a collective copies to it."""
    ranks, pieces, words = end.bits.shape
    piece = np.arange(pieces)
    bit = {  # of each piece of each rank, or of every rank
        ALL_GATHER: piece[None],
        BROADCAST: np.full((1, pieces), root),
        ALL_TO_ALL: piece * pieces + np.arange(ranks)[:, None],
    }[kind]
    if (other := np.argwhere((end.bits != _single(bit, words)).any(axis=-1))).size:
        rank, place = map(int, other[0])
        held = end.contributors(rank, place)
        if kind == ALL_TO_ALL:
            has = " and ".join(f"piece {bit % pieces} of rank {bit // pieces}" for bit in held)
        else:
            has = f"that of {_some(held)}" if held else "nothing"
        raise RunError(f"{where}: rank {rank} has {has} in place of piece {place} ({len(other)} such piece(s) in all)")


def _single(bit: np.ndarray, words: int) -> np.ndarray:
    """Sets of one: (...) -> (..., words)."""
    sets = np.zeros((*bit.shape, words), np.uint64)
    values = np.left_shift(np.uint64(1), (bit % 64).astype(np.uint64))
    np.put_along_axis(sets, bit[..., None] // 64, values[..., None], axis=-1)
    return sets


def states(name: str, shape: Shape, root: int = 0) -> Iterator[State]:
    """What all ranks hold before the first round, then after each; raises as `verify` does, but for what is missing."""
    for _, _, state in _run(name, shape, root, ALL_REDUCE):
        yield State(shape, state.bits.copy())


def refuse_size(name: str, shape: Shape, kind: str = ALL_REDUCE, chunks: int | None = None) -> None:
    """Raises InputError if the sets of a collective would take too much memory."""
    ranks, pieces, words = _sizes(name, shape, kind, chunks)
    if (needed := ranks * pieces * words * 8) > MOST_BYTES:
        of = "where its pieces come from" if kind == ALL_TO_ALL else f"contributing ranks of its {pieces} pieces"
        raise InputError(
            f"{_where(name, shape)}: too large to be checked: the sets of {of} "
            f"would take {needed / 2**30:.3g} GiB, more than {MOST_BYTES / 2**30:g}: check it on fewer ranks"
        )


def _sizes(name: str, shape: Shape, kind: str, chunks: int | None) -> tuple[int, int, int]:
    """(ranks, pieces, words of a set)."""
    ranks, pieces = prod(shape), collectives.pieces(name, shape, chunks)
    return ranks, pieces, -(-(ranks * pieces if kind == ALL_TO_ALL else ranks) // 64)


def patterns(state: State, rank: int) -> tuple[str, ...]:
    """A server of BCube(n, k) under BML as the paper writes it, a text per thread: `<0,*,1>([0,*])` (Fig. 4).

    Before the brackets are the pieces of the thread that hold most contributions, inside them whose these are; `*`
    stands for all n digits. Raises ValueError if they are no such pattern.
    """
    shape, names = state.shape, bml.piece_ids(state.shape)
    texts = []
    for thread in range(len(shape)):
        pieces = np.flatnonzero(names[:, 0] == thread)
        counts = _size(state.bits[rank, pieces])
        fullest = pieces[counts == counts.max()]
        sets = np.unique(state.bits[rank, fullest], axis=0)
        if len(sets) > 1:
            raise ValueError(f"rank {rank}, thread {thread}: pieces with equally many contributors have different ones")
        servers = np.stack(np.unravel_index(_ranks(sets[0]), shape[::-1]), axis=1)  # the last digit is level 0
        pattern = ",".join([str(thread), *_compressed(names[fullest, 1:], shape[::-1])])
        texts.append(f"<{pattern}>([{','.join(_compressed(servers, shape[::-1]))}])")
    return tuple(texts)


def _compressed(ids: np.ndarray, sizes: Shape) -> list[str]:
    """Digits that all ids share, `*` if they have all digits.  # ids: (ids, digits)"""
    one = (ids == ids[0]).all(axis=0)
    if len(ids) != prod(size for size, same in zip(sizes, one, strict=True) if not same):
        raise ValueError(f"{len(ids)} ids are no pattern of digits and *: {ids[:4].tolist()} ...")
    return [str(digit) if same else "*" for digit, same in zip(ids[0], one, strict=True)]


def _ranks(words: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")).tolist()


def _some(ranks: list[int]) -> str:
    """At most five of them by number."""
    more = f" and {len(ranks) - 5} more" if len(ranks) > 5 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:5]))}{more}"


def _where(name: str, shape: Shape) -> str:
    return f"collective {name!r} on {' x '.join(map(str, shape))} ranks"


def _run(
    name: str, shape: Shape, root: int, kind: str, chunks: int | None = None
) -> Iterator[tuple[int, Round | None, State]]:
    """(0, None, first state), then (number, round, state after it): one state, which changes."""
    collectives.refuse(name, shape, kind)
    refuse_size(name, shape, kind, chunks)
    ranks, pieces, words = _sizes(name, shape, kind, chunks)
    rank, piece = np.arange(ranks)[:, None], np.arange(pieces)
    if kind == ALL_TO_ALL:
        bits = _single(rank * pieces + piece, words)
    else:
        bits = _single(np.broadcast_to(rank, (ranks, pieces)), words)
    if kind == ALL_GATHER:
        bits[rank != piece] = 0
    elif kind == BROADCAST:
        bits[rank[:, 0] != root] = 0
    state = State(shape, bits)
    yield 0, None, state
    for number, step in enumerate(collectives.rounds(name, shape, root, kind, chunks), start=1):
        _play(step, bits, f"{_where(name, shape)}: round {number}")
        yield number, step, state


class _Rows(NamedTuple):
    """A row for each piece of each transfer of a round, sorted by where it goes."""

    sender: np.ndarray
    receiver: np.ndarray
    piece: np.ndarray  # of the receiver; these three: (rows,)
    sent: np.ndarray  # what the sender had before the round (rows, words)


def _play(step: Round, bits: np.ndarray, where: str) -> None:
    """Change `bits` as the round does; raises RunError."""
    _refuse_transfers(step, bits, where)
    rows = _rows(step, bits)
    if not len(rows.piece):
        return
    new = np.ones(len(rows.piece), bool)  # the first row of those that go to one piece of one rank
    new[1:] = (rows.receiver[1:] != rows.receiver[:-1]) | (rows.piece[1:] != rows.piece[:-1])
    starts = np.flatnonzero(new)
    at = rows.receiver[starts], rows.piece[starts]
    if not step.adds:
        if not new.all():
            second = int(new.argmin())
            raise RunError(
                f"{where}: ranks {rows.sender[second - 1]} and {rows.sender[second]} both replace piece "
                f"{rows.piece[second]} of rank {rows.receiver[second]}: which of them comes last is left to chance"
            )
        bits[at] = rows.sent
        return
    together = np.bitwise_or.reduceat(rows.sent, starts, axis=0) | bits[at]
    summed = np.add.reduceat(_size(rows.sent), starts) + _size(bits[at])
    if (twice := summed != _size(together)).any():
        _refuse_twice(_Rows(*(np.split(each, starts[1:])[int(twice.argmax())] for each in rows)), bits, where)
    bits[at] = together


def _size(sets: np.ndarray) -> np.ndarray:
    """Ranks in each set.  # (..., words) -> (...)"""
    return np.bitwise_count(sets).sum(axis=-1, dtype=np.int64)


def _rows(step: Round, bits: np.ndarray) -> _Rows:
    count = np.asarray(step.pieces, np.int64)
    before = np.repeat(np.cumsum(count) - count, count)  # rows of the transfers before each row's
    piece = np.repeat(step.first, count) + np.arange(len(before)) - before
    place = piece + np.repeat(step.place - step.first, count)
    receiver = np.repeat(step.destination, count)
    order = np.argsort(receiver * np.int64(bits.shape[1]) + place, kind="stable")
    sender, piece = np.repeat(step.source, count)[order], piece[order]
    return _Rows(sender, receiver[order], place[order], bits[sender, piece])


def _refuse_transfers(step: Round, bits: np.ndarray, where: str) -> None:
    """Raises RunError for a transfer between ranks, or of pieces, that there are not."""
    ranks, pieces, _ = bits.shape
    source, destination, first, count = step[:4]
    low, high = np.minimum(first, step.place), np.maximum(first, step.place)
    lowest, highest = np.minimum(source, destination), np.maximum(source, destination)
    faults = (
        ((lowest < 0) | (highest >= ranks), f"there are ranks 0 to {ranks - 1}"),
        (source == destination, "a rank doesn't send to itself"),
        ((count < 1) | (low < 0) | (high + count > pieces), f"there are pieces 0 to {pieces - 1}"),
    )
    for wrong, why in faults:
        if wrong.any():
            i = int(wrong.argmax())
            raise RunError(
                f"{where}: rank {source[i]} sends {count[i]} piece(s) from piece {first[i]} on to rank "
                f"{destination[i]}: {why}"
            )


def _refuse_twice(rows: _Rows, bits: np.ndarray, where: str) -> None:
    """Raises RunError that names the contributions which some of these rows, to one piece of one rank, add again."""
    held = bits[rows.receiver[0], rows.piece[0]].copy()
    for sender, receiver, piece, sent in zip(*rows, strict=True):
        if (again := held & sent).any():
            raise RunError(
                f"{where}: rank {receiver} adds the contribution of {_some(_ranks(again))} to piece {piece} a second "
                f"time, from rank {sender}"
            )
        held |= sent
