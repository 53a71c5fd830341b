"""Collectives as rounds of transfers: how one message travels.

A collective is one file here with `rounds(n)`: the rounds of an all-reduce of n ranks over a message that is cut
into `pieces(n)` equal pieces. A round is arrays of transfers, so that a round of many ranks is a few vectorised
operations. Ranks run the rounds in step. `native` (the backend's own) has no rounds and no file.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, NamedTuple

import numpy as np

from gradsync.errors import InputError
from gradsync.plan import Buffer, Collective, Local, Recv, Ref, Send, piece

NATIVE = "native"


class Round(NamedTuple):
    """Transfers of one round: rank source[i] sends `pieces[i]` pieces from first[i] on to destination[i].

    The destination adds them to its own where `adds`, else they replace its own.  # all (transfers,)
    """

    source: np.ndarray
    destination: np.ndarray
    first: np.ndarray
    pieces: np.ndarray
    adds: bool


def names() -> list[str]:
    """Names of all collectives that are described by rounds, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def get(name: str) -> Any:
    """The module of a collective; raises InputError that lists the known ones."""
    if name not in names():
        raise InputError(f"collective {name!r} does not exist; there are: {NATIVE}, {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def power_of_two(n: int, name: str) -> int:
    """log2(n); raises InputError where n is no power of two."""
    if n < 1 or n & (n - 1):
        raise InputError(f"collective {name!r} needs a power of two of ranks, not {n}: use ring")
    return n.bit_length() - 1


def seconds(name: str, n: int, size: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Time of an all-reduce of `size` bytes, round by round.

    A round takes alpha + beta times the bytes of its busiest sender, + gamma times the bytes that the busiest
    receiver adds.
    """
    module = get(name)
    per_piece = size / module.pieces(n)
    total = 0.0
    for step in module.rounds(n):
        sent = np.bincount(step.source, step.pieces, minlength=n).max() * per_piece
        received = np.bincount(step.destination, step.pieces, minlength=n).max() * per_piece
        total += alpha + beta * sent + (gamma * received if step.adds else 0.0)
    return total


def scratch(op: Collective, ranks: int, dtype: str) -> Buffer:
    """The buffer that `lower` receives into before it adds."""
    (ref,) = op.writes
    return Buffer(f"scratch:{op.name}", -(-(ref.stop - ref.start) // get(op.algorithm).pieces(ranks)) * ranks, dtype)


def lower(op: Collective, rank: int, ranks: int, tag: int) -> list[Any]:
    """The sends, receives and local operations of `rank` in an all-reduce, in order; the last has the name of `op`.

    Raises InputError where `op` is not an all-reduce of all ranks over one range.
    """
    if op.kind != "all_reduce" or op.ranks or len(op.writes) != 1 or op.reads != op.writes:
        raise InputError(f"collective {op.name!r}: only an all-reduce of one range over all ranks can be lowered")
    module = get(op.algorithm)
    buffer, start, stop, _ = op.writes[0]
    pieces = module.pieces(ranks)

    def bounds(first: int, count: int) -> tuple[int, int]:
        return piece(start, stop, first, pieces)[0], piece(start, stop, first + count - 1, pieces)[1]

    ops: list[Any] = []
    sends: list[Send] = []  # of this round
    earlier: tuple[str, ...] = ()  # sends of the round before, until something has waited for them

    def waits(*more: str) -> dict[str, Any]:
        """The first operation of all waits for what `op` waits for, the first of a round for the round before."""
        nonlocal earlier
        after, earlier = (*more, *earlier), ()
        return {"after": after} if ops else {"after": op.after + after, "after_previous": op.after_previous}

    for number, step in enumerate(module.rounds(ranks)):
        earlier += tuple(send.name for send in sends)
        sends = []
        for i in np.flatnonzero(step.source == rank):
            low, high = bounds(int(step.first[i]), int(step.pieces[i]))
            if high > low:
                to = int(step.destination[i])
                name, ref = f"{op.name}.send{number}.{to}", Ref(buffer, low, high)
                sends.append(Send(name=name, lane=op.lane, reads=(ref,), to=to, tag=tag, **waits()))
                ops.append(sends[-1])
        for i in np.flatnonzero(step.destination == rank):
            low, high = bounds(int(step.first[i]), int(step.pieces[i]))
            if high <= low:
                continue
            source, ref = int(step.source[i]), Ref(buffer, low, high)
            busy = tuple(send.name for send in sends if send.reads[0].start < high and low < send.reads[0].stop)
            name = f"{op.name}.recv{number}.{source}"
            if not step.adds:
                ops.append(Recv(name=name, lane=op.lane, writes=(ref,), source=source, tag=tag, **waits(*busy)))
                continue
            into = Ref(f"scratch:{op.name}", 0, high - low)
            ops.append(Recv(name=name, lane=op.lane, writes=(into,), source=source, tag=tag, **waits()))
            ops.append(
                Local(
                    name=f"{op.name}.add{number}.{source}",
                    lane=op.lane,
                    after=busy,
                    kernel="add",
                    reads=(into,),
                    writes=(ref,),
                )
            )
    ops.append(
        Local(
            name=op.name,
            lane=op.lane,
            after=(*op.after, *earlier, *(send.name for send in sends)),
            after_previous=op.after_previous,
            kernel="join",
            writes=op.writes,
            postcondition=op.postcondition,
        )
    )
    return ops
