"""Carry one message between ranks that share memory as the rounds of its collective say: readers read in place.

Each rank has the message in an array that the others have mapped too. In a round, the source of a transfer rings that
its elements are final; the destination adds them to its own, or copies them, from the source's memory, and rings that
it has them. A source waits for that before it writes these elements again, and at the end. Ranks go through the rounds
in order and ringing never blocks, so of all ranks that wait, the one furthest behind waits for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch

from gradsync.errors import InputError
from gradsync.plan import Collective, Group
from gradsync.rounds.lowering import Exchange, Range, exchanges
from gradsync.runtime.bells import READY, TAKEN, Bells


class Move(NamedTuple):
    """One thing that a rank does: ring or wait for a bell, or add or copy a peer's elements of a range to its own."""

    kind: Literal["ring", "wait", "add", "copy"]
    part: Range
    bell: bytes = b""


def moves(rounds: list[Exchange], name: str) -> list[Move]:
    """What a rank does; raises InputError, which names the collective, if a round reads what it writes."""
    done: list[Move] = []
    lent: list[Range] = []  # elements that a peer may still be reading
    for exchange in rounds:
        if any(_overlap(out, into) for out in exchange.sends for into in exchange.receives):
            raise InputError(f"collective {name!r} reads and writes the same elements in a round: it needs messages")
        done += [Move("ring", part, READY) for part in exchange.sends]
        lent += exchange.sends
        for part in exchange.receives:
            busy = [each for each in lent if _overlap(each, part)]
            lent = [each for each in lent if each not in busy]
            done += [Move("wait", each, TAKEN) for each in busy]
            done += [Move("wait", part, READY), Move("add" if exchange.adds else "copy", part)]
            done.append(Move("ring", part, TAKEN))
    return [*done, *(Move("wait", each, TAKEN) for each in lent)]


def _overlap(one: Range, other: Range) -> bool:
    return one.low < other.high and other.low < one.high


class MemoryRounds:
    """One message of a plan, ready to be summed as often as wanted; `run` is one collective, in place.

    `arrays`: by rank, the whole buffer that `op` reads and writes, this rank's and those of the others of `group`, who
    exchange its elements `bounds` (None: the range of `op`).
    """

    def __init__(
        self,
        op: Collective,
        rank: int,
        group: Group,
        arrays: Mapping[int, torch.Tensor],
        bells: Bells,
        *,
        bounds: tuple[int, int] | None = None,
    ):
        self.bells, own = bells, arrays[rank]
        self.moves = [
            (each.kind, each.part.peer, each.bell, own[each.part.low : each.part.high], _of(arrays, each.part))
            for each in moves(list(exchanges(op, rank, group, bounds)), op.algorithm)
        ]

    def run(self) -> None:
        """Block until the message is complete here and others have read what they need; RunError names who is gone."""
        for kind, peer, bell, own, theirs in self.moves:
            match kind:
                case "ring":
                    self.bells.ring(peer, bell)
                case "wait":
                    self.bells.wait(peer, bell)
                case "add":
                    own.add_(theirs)
                case "copy":
                    own.copy_(theirs)


def _of(arrays: Mapping[int, torch.Tensor], part: Range) -> torch.Tensor:
    """The peer's own elements of a range."""
    return arrays[part.peer][part.low : part.high]
