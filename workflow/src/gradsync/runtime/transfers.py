"""Carry one message from rank to rank as the rounds of its collective say: asynchronous, in chunks, by data alone.

`actions` turns the rounds of one rank into a list that is the same whenever the message is sent: post a transfer, wait
for one, add a chunk. Ranks are not kept in step: a chunk is sent on as soon as what it holds is final, whatever else is
still on its way. Gloo moves a message once its receive is posted, so that receives are posted before they are needed,
as soon as their memory is free.

No rank waits for ever, given that every send of a round has its receive in that round. Receives are waited for in the
order of rounds and chunks, sends depend on earlier rounds only, and a send is waited for only when all receives of the
rounds before have come (for an exchange of one range, those of the chunks before). So of all ranks that wait, the one
furthest behind waits for something that its peer has posted.

On one link, receives are posted before sends: the same connection notifies the peer of a posted receive, and the notice
would wait behind the data.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Literal, NamedTuple

import torch

from gradsync.errors import RunError
from gradsync.plan import Collective, Group, piece
from gradsync.rounds.lowering import Exchange, Range, exchanges
from gradsync.runtime.group import Groups

# Measured with Gloo between four ranks on two cores: shorter chunks cost more wake-ups, longer ones leave the cache
# before they are added and sent on.
CHUNK_BYTES = 960 * 1024
SLOTS = 2  # receives of one link that are posted at a time
ALIGNED = 64  # elements; copies into a slot are faster from the beginning of a cache line

Link = tuple[int, int]  # peer, rail


class Action(NamedTuple):
    """One thing that a rank does; `number` is that of a transfer of this rank.

    send, receive: post elements [low, high) of the buffer, or the scratch from `slot` on. wait: wait for a posted one.
    add, copy: add or copy the scratch from `slot` on to elements [low, high) of the buffer.
    """

    kind: Literal["send", "receive", "wait", "add", "copy"]
    number: int
    part: Range
    slot: int | None = None  # None: in place


@dataclass
class _Send:
    part: Range
    round: int
    after: int  # the receive that must have been added before; -1: none
    number: int | None = None  # once posted
    waited: bool = False


@dataclass
class _Receive:
    part: Range
    round: int
    after: int  # in place: the receive that must have come before this one is posted
    sends: list[int]  # that read the memory which this one writes
    then: Literal["add", "copy"] | None  # what happens to it; None: received in place
    number: int | None = None
    slot: int | None = None


def actions(rounds: Sequence[Exchange], longest: int, slots: int = SLOTS) -> tuple[list[Action], int]:
    """(what a rank does, elements of its scratch), for chunks of at most `longest` elements."""
    sends, receives = _chunks(rounds, longest)
    if any(map(_cross, rounds)):
        slots = len(receives)  # a rank that waits for its send can't go on receiving: let all be posted by then
    return _Writer(sends, receives, slots).write()


def _cross(exchange: Exchange) -> bool:
    """Whether elements are sent and received in a round that exchanges more than one range.

    Ranks may then take its ranges in different orders, each waiting for a send that the other has not come to.
    """
    ranges = {(each.low, each.high) for each in (*exchange.sends, *exchange.receives)}
    both = any(one.low < other.high and other.low < one.high for one in exchange.sends for other in exchange.receives)
    return both and len(ranges) > 1


def _cut(ranges: Iterable[Range], longest: int) -> list[Range]:
    """Cut ranges into even chunks; ranges take turns."""
    chunks = []
    for position, part in enumerate(ranges):
        count = -(-(part.high - part.low) // longest)
        for number in range(count):
            low, high = piece(part.low, part.high, number, count)
            chunks.append((number, position, part._replace(low=low, high=high)))
    return [part for *_, part in sorted(chunks, key=lambda each: each[:2])]


def _chunks(rounds: Sequence[Exchange], longest: int) -> tuple[list[_Send], list[_Receive]]:
    """The chunks of all rounds, in order, with what each must wait for."""
    cut = [(_cut(each.sends, longest), _cut(each.receives, longest), each.adds) for each in rounds]
    borders = sorted({border for out, into, _ in cut for part in (*out, *into) for border in (part.low, part.high)})
    place = {border: i for i, border in enumerate(borders)}
    written = [-1] * len(borders)  # the last receive into the elements between a border and the next
    read: list[list[int]] = [[] for _ in borders]  # sends from there that nobody has waited for
    sends: list[_Send] = []
    receives: list[_Receive] = []
    for number, (out, into, adds) in enumerate(cut):
        for part in out:
            between = range(place[part.low], place[part.high])
            for i in between:
                read[i].append(len(sends))
            sends.append(_Send(part, number, max(written[i] for i in between)))
        before = written.copy()
        for part in into:
            between = range(place[part.low], place[part.high])
            readers = sorted({send for i in between for send in read[i]})
            swapped = any(sends[send].round == number for send in readers)
            then: Literal["add", "copy"] | None = "add" if adds else "copy" if swapped else None
            for i in between:
                read[i], written[i] = [], len(receives)
            receives.append(_Receive(part, number, max(before[i] for i in between), readers, then))
    return sends, receives


class _Writer:
    """Writes down the actions in the order in which they are done."""

    def __init__(self, sends: list[_Send], receives: list[_Receive], slots: int):
        self.sends, self.receives, self.slots = sends, receives, slots
        self.out = _by_link(sends)
        self.into = _by_link(receives)
        self.actions: list[Action] = []
        self.transfers = 0
        # the beginning of a link's scratch, and the length of its slots
        self.scratch, self.slot = 0, dict[Link, tuple[int, int]]()
        for link, numbers in self.into.items():
            staged = [receives[i].part for i in numbers if receives[i].then]
            length = max((part.high - part.low for part in staged), default=0)
            length = -(-length // ALIGNED) * ALIGNED
            self.slot[link] = self.scratch, length
            self.scratch += length * min(slots, len(numbers))
        self.crowded = _crowded(sends)
        self.posted = dict.fromkeys((*self.out, *self.into), 0)
        self.next_send = dict.fromkeys(self.out, 0)

    def write(self) -> tuple[list[Action], int]:
        """(actions, elements of the scratch)."""
        self._receive_ahead(-1)  # first: what peers then send need not wait for a notice
        self._send(-1)
        for number, receive in enumerate(self.receives):
            if receive.number is None:
                self._post(receive)
            self._do("wait", receive.number, receive.part)
            if receive.then:
                self._wait_for_sends(receive)
                self._do(receive.then, receive.number, receive.part, receive.slot)
            self._receive_ahead(number)
            self._send(number)
        for send in self.sends:
            self._sent(send)
        return self.actions, self.scratch

    def _do(self, kind: Any, number: int | None, part: Range, slot: int | None = None) -> None:
        assert number is not None
        self.actions.append(Action(kind, number, part, slot))

    def _send(self, done: int) -> None:
        """Post, round by round and link by link in order, what is final once the receive `done` has come."""
        while ready := list(self._ready(done)):
            first = min(send.round for send in ready)
            for send in ready:
                if send.round == first:
                    self._leave(send)
                    send.number, self.transfers = self.transfers, self.transfers + 1
                    self._do("send", send.number, send.part)
                    self.next_send[send.part.peer, send.part.rail] += 1

    def _ready(self, done: int) -> Iterator[_Send]:
        """The next send on each link, if it may go.

        After a round that sends to several peers over one rail, the next on that rail waits until all receives of that
        round have come: it would take its share of the link from what others still wait for.
        """
        front = self._front(done)
        for link, numbers in self.out.items():
            if (at := self.next_send[link]) < len(numbers):
                send = self.sends[numbers[at]]
                crowds = (each.round for each in self.crowded[link[1]])
                if send.after <= done and not any(front <= crowd < send.round for crowd in crowds):
                    yield send

    def _leave(self, send: _Send) -> None:
        """Wait for the sends of crowded earlier rounds over the rail."""
        crowd = self.crowded[send.part.rail]
        while crowd and crowd[0].round < send.round:
            self._sent(crowd.popleft())

    def _receive_ahead(self, done: int) -> None:
        """Post, link by link in order, receives whose memory is free once the receive `done` has come."""
        front = self._front(done)
        for link, numbers in self.into.items():
            while (at := self.posted[link]) < len(numbers):
                receive = self.receives[numbers[at]]
                full = at >= self.slots and numbers[at - self.slots] > done
                if full or (receive.then is None and not self._free(receive, done, front)):
                    break
                self._post(receive)

    def _front(self, done: int) -> float:
        """The round of the first receive after `done`: those of all rounds before it have come."""
        return self.receives[done + 1].round if done + 1 < len(self.receives) else inf

    def _free(self, receive: _Receive, done: int, front: float) -> bool:
        sends = [self.sends[i] for i in receive.sends]
        return receive.after <= done and all(send.number is not None and send.round < front for send in sends)

    def _post(self, receive: _Receive) -> None:
        link = receive.part.peer, receive.part.rail
        if receive.then:
            start, length = self.slot[link]
            receive.slot = start + self.posted[link] % self.slots * length
        else:
            self._wait_for_sends(receive)
        receive.number, self.transfers = self.transfers, self.transfers + 1
        self._do("receive", receive.number, receive.part, receive.slot)
        self.posted[link] += 1

    def _wait_for_sends(self, receive: _Receive) -> None:
        for i in receive.sends:
            self._sent(self.sends[i])

    def _sent(self, send: _Send) -> None:
        if not send.waited:
            send.waited = True
            self._do("wait", send.number, send.part)


def _crowded(sends: Sequence[_Send]) -> dict[int, deque[_Send]]:
    """By rail, the sends of rounds that send to several peers over it, in order."""
    peers: dict[tuple[int, int], set[int]] = defaultdict(set)
    for send in sends:
        peers[send.part.rail, send.round].add(send.part.peer)
    by_rail: dict[int, deque[_Send]] = defaultdict(deque)
    for send in sends:
        if len(peers[send.part.rail, send.round]) > 1:
            by_rail[send.part.rail].append(send)
    return by_rail


def _by_link(chunks: Sequence[Any]) -> dict[Link, list[int]]:
    numbers: dict[Link, list[int]] = defaultdict(list)
    for i, chunk in enumerate(chunks):
        numbers[chunk.part.peer, chunk.part.rail].append(i)
    return dict(numbers)


@dataclass
class Scratch:
    """Memory that messages receive into; messages of one lane and type follow one another and share it."""

    buffers: dict[tuple[str, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def of(self, lane: str, like: torch.Tensor, elements: int) -> torch.Tensor:
        """A buffer of at least so many elements; a larger one is a new one, so that earlier users keep theirs."""
        buffer = self.buffers.get((lane, like.dtype))
        if buffer is None or len(buffer) < elements:
            buffer = self.buffers[lane, like.dtype] = like.new_empty(elements)
        return buffer


_POST, _WAIT, _COMBINE = range(3)


class Transfers:
    """One message of a plan, ready to be sent as often as wanted; `run` is one collective of `buffer` in place.

    `buffer`: the whole buffer that `op` reads and writes; the ranks of `group` exchange its elements `bounds` (None:
    the range of `op`). `tag`: no other operation of the lane has it. The groups of the lane must be there
    (`Groups.prepare`).
    """

    def __init__(
        self,
        op: Collective,
        rank: int,
        group: Group,
        buffer: torch.Tensor,
        groups: Groups,
        *,
        bounds: tuple[int, int] | None = None,
        tag: int = 0,
        scratch: Scratch | None = None,
    ):
        moves, elements = actions(
            list(exchanges(op, rank, group, bounds)), max(1, CHUNK_BYTES // buffer.dtype.itemsize)
        )
        memory = (scratch or Scratch()).of(op.lane, buffer, elements)
        self.transfers = sum(action.kind in ("send", "receive") for action in moves)
        self.actions: list[tuple[int, int, Callable[..., Any] | None, Any, int]] = []
        for kind, number, (peer, low, high, rail), slot in moves:
            part = buffer[low:high] if slot is None or kind in ("add", "copy") else memory[slot : slot + high - low]
            match kind:
                case "send" | "receive":
                    connected, place = groups.between(op.lane, group, rail, rank, peer)
                    post = connected.send if kind == "send" else connected.recv
                    self.actions.append((_POST, number, partial(post, [part], place, tag), None, peer))
                case "wait":
                    self.actions.append((_WAIT, number, None, None, peer))
                case _:
                    assert slot is not None
                    combine = part.add_ if kind == "add" else part.copy_
                    self.actions.append((_COMBINE, number, combine, memory[slot : slot + high - low], peer))

    def run(self) -> None:
        """Block until it is complete here, and all that this rank sends has left; RunError names a peer that failed."""
        works: list[Any] = [None] * self.transfers
        peer = 0
        try:
            for code, number, call, what, peer in self.actions:  # noqa: B007  the error names the last peer
                if code == _WAIT:
                    works[number].wait()
                elif code == _POST:
                    works[number] = call()  # type: ignore[misc]
                else:
                    call(what)  # type: ignore[misc]
        except RuntimeError as error:
            raise RunError(f"transfer with rank {peer}: {str(error).splitlines()[0]}") from error
