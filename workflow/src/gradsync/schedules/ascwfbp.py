"""ASC-WFBP: each layer is normal, merged or simultaneous, on two lanes (ASC-WFBP Algorithm 1, 2, Theorem 1).

With ready[l] the end of backward of l, tau_c[l] the start and t_c[l] the time of its message were it a normal layer,
pen the penalty of starting it at ready[l] while the message before it is under way (`costs/pairwise_contention.py`),
a the gain of a merge:

    Q1: tau_c[l] + t_c[l] <= ready[l-1]            normal: waits for all messages before it
    Q2: ready[l-1] < tau_c[l] + a
    Q3: ready[l] + t_c[l] + pen < ready[l-1]
    not Q1, Q2, not Q3                             merged: travels with layer l-1
    else                                           simultaneous: waits for a free lane alone

On a cost that is no line, T(m) stands for a + b m, and a is what a merge saves, T(m[l]) + T(m[l-1]) - T(m[l] + m[l-1]).

Differs from the paper:
- Q1 and Q3 are as the theory has them, from ready[l-1] and ready[l], not as lines 8 and 12 (ASC-E01, E02); a normal
  layer queues behind all messages, as Definition 1 says and line 26 does not (ASC-E03); as printed the rule collapses
  (ASC-E04);
- the loops reach layer 1 (ASC-E05), the clock starts at forward (ASC-E06), layer L has no penalty (ASC-E07);
- a merged layer takes no time and passes its bytes on (ASC-E08), sizes are not changed in place (ASC-E09);
- the penalty is that of the message still under way, between 0 and its bytes (ASC-E10) and no more than the second has
  (ASC-E11), and delays both (ASC-E12); layer 1 starts once it is ready and a lane is free (ASC-E13); never more than
  two messages are under way (ASC-E14);
- in Algorithm 2 all layers but merged ones are sent, from a buffer that holds their gradients, normal ones in order
  (ASC-E22 to E25): here that is the plan's;
- the paper computes all start times anew after each change, O(L^2); only the next one is ever read: O(L) here.

Theorem 1 is not optimal in its own model (ASC-E17). `rule: argmin` takes the least of pi_WFBP, pi_MG and pi_SC (Eq. 15
to 17) instead, still layer by layer. `as_printed` keeps Algorithm 1 to the letter.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gradsync.costs import MessageCost, pairwise_contention
from gradsync.costs.contention import capacity
from gradsync.errors import InputError
from gradsync.plan.workload import Workload
from gradsync.schedules import DEFAULT_LANE, Message

LANES = 2
RULES = ("theorem", "argmin")


class Kind(Enum):
    """The type e[l] of a layer."""

    NORMAL = "l_n"
    MERGED = "l_m"
    SIMULTANEOUS = "l_s"


def schedule(
    workload: Workload, cost: MessageCost, *, gamma: float = 0.0, rule: str = "theorem", as_printed: bool = False
) -> tuple[Message, ...]:
    """`gamma` 0: that of two messages under the contention of the cost; else from 1 to 2. `rule`: theorem or argmin.

    Raises InputError for another gamma or rule.
    """
    if rule not in RULES:
        raise InputError(f"ascwfbp: rule {rule!r} does not exist; there are: {', '.join(RULES)}")
    if as_printed and rule != RULES[0]:
        raise InputError(f"ascwfbp: as printed there is one rule, {RULES[0]}; rule {rule!r} is given too")
    if gamma:
        pairwise_contention.refuse_gamma(gamma, LANES)
    factor = gamma or derived_gamma(cost)
    chosen = printed_kinds(workload, cost, factor) if as_printed else kinds(workload, cost, factor, rule)
    return _messages(timed(workload, cost, chosen, factor))


def derived_gamma(cost: MessageCost) -> float:
    """gamma of two messages of equal size, which together get `capacity` times what one gets alone: from 1 to 2."""
    return min(max(LANES / capacity(cost), 1.0), float(LANES))


class Sent(NamedTuple):
    """A message by the paper's model: layers first..last in backward order, start and end in seconds, its lane."""

    first: int
    last: int
    kind: Kind
    bytes: float
    start: float
    end: float
    lane: int


class _Start(NamedTuple):
    lane: int
    time: float
    penalty: float
    delays: int  # number of the message that the penalty delays too, -1 for none


class _Timeline:
    """Messages in the order sent, timed by the pairwise model, never more than two under way."""

    def __init__(self, cost: MessageCost, gamma: float):
        self.cost, self.gamma = cost, gamma
        self.sent: list[Sent] = []
        self.newest = [-1] * LANES  # the last message of each lane

    def end(self, lane: int) -> float:
        """When the messages of a lane have ended."""
        return self.sent[self.newest[lane]].end if self.newest[lane] >= 0 else 0.0

    def in_order(self, ready: float) -> _Start:
        """Of a normal message: once all before it have ended."""
        last_lane = self.sent[-1].lane if self.sent else 0
        # if all have ended already, the lane of the message before: one lane fewer to wait for
        lane = last_lane if max(map(self.end, range(LANES))) <= ready else min(range(LANES), key=self.end)
        return _Start(lane, max(ready, *map(self.end, range(LANES))), 0.0, -1)

    def simultaneous(self, ready: float, size: float) -> _Start:
        """Of a simultaneous message: once one lane is free."""
        lane = min(range(LANES), key=lambda lane: (self.end(lane), self.newest[lane]))
        time = max(ready, self.end(lane))
        other = self.newest[1 - lane]
        if other < 0 or self.sent[other].end <= time:
            return _Start(lane, time, 0.0, -1)
        before = self.sent[other]
        a = float(self.cost.startup_seconds(before.bytes))
        b = (float(self.cost.seconds(before.bytes)) - a) / before.bytes
        overlapped = pairwise_contention.penalty_bytes(before.bytes, before.start, time, size, a, b)
        return _Start(lane, time, pairwise_contention.penalty(overlapped, b, self.gamma), other)

    def send(self, first: int, last: int, kind: Kind, size: float, ready: float) -> None:
        """A normal or simultaneous message, its gradients all there at `ready`."""
        start = self.in_order(ready) if kind is Kind.NORMAL else self.simultaneous(ready, size)
        if start.delays >= 0:  # Eq. 11 slows both
            late = self.sent[start.delays]
            self.sent[start.delays] = late._replace(end=late.end + start.penalty)
        end = start.time + float(self.cost.seconds(size)) + start.penalty
        self.newest[start.lane] = len(self.sent)
        self.sent.append(Sent(first, last, kind, size, start.time, end, start.lane))


def kinds(workload: Workload, cost: MessageCost, gamma: float, rule: str = "theorem") -> list[Kind]:
    """The type of each layer, in backward order, by the corrected Theorem 1 or by the least of the three times."""
    ready, m = workload.ready_seconds().tolist(), workload.sizes().tolist()  # index i is layer l = L - i
    single = cost.seconds(workload.sizes()).tolist()
    timeline = _Timeline(cost, gamma)
    chosen = []
    first, size, t_c = 0, m[0], single[0]  # of the message that ends with layer l
    for i in range(len(m) - 1):
        next_ready = ready[i + 1]
        tau_c = timeline.in_order(ready[i]).time
        t_merged = float(cost.seconds(size + m[i + 1]))
        if tau_c + t_c <= next_ready:  # Q1
            kind = Kind.NORMAL
        else:
            a = t_c + single[i + 1] - t_merged
            start = timeline.simultaneous(ready[i], size)
            simultaneous_end = start.time + t_c + start.penalty
            if rule == "argmin":
                pi = {
                    Kind.SIMULTANEOUS: max(simultaneous_end, next_ready) + single[i + 1],  # Eq. 17
                    Kind.MERGED: max(tau_c, next_ready) + t_merged,  # Eq. 16
                    Kind.NORMAL: tau_c + t_c + single[i + 1],  # Eq. 15
                }
                kind = min(pi, key=pi.__getitem__)
            elif next_ready < tau_c + a and not simultaneous_end < next_ready:  # Q2 and not Q3
                kind = Kind.MERGED
            else:
                kind = Kind.SIMULTANEOUS
        chosen.append(kind)
        if kind is Kind.MERGED:
            size, t_c = size + m[i + 1], t_merged
        else:
            timeline.send(first, i, kind, size, ready[i])
            first, size, t_c = i + 1, m[i + 1], single[i + 1]
    return [*chosen, Kind.SIMULTANEOUS]  # line 18


def timed(workload: Workload, cost: MessageCost, chosen: list[Kind], gamma: float) -> list[Sent]:
    """The messages of layers of these types by the paper's model (CalcCommTime, corrected); the last layer is sent."""
    ready, m = workload.ready_seconds().tolist(), workload.sizes().tolist()
    timeline = _Timeline(cost, gamma)
    first, size = 0, 0.0
    for i, kind in enumerate(chosen):
        size += m[i]
        if kind is not Kind.MERGED:
            timeline.send(first, i, kind, size, ready[i])
            first, size = i + 1, 0.0
    return timeline.sent


def _messages(sent: list[Sent]) -> tuple[Message, ...]:
    """Normal messages wait for the last of the other lane too; a lane alone is the default one."""
    names = [f"{DEFAULT_LANE}{lane}" for lane in range(LANES)]
    if len({message.lane for message in sent}) == 1:
        names = [DEFAULT_LANE] * LANES
    messages = []
    newest = [-1] * LANES
    for number, message in enumerate(sent):
        other = newest[1 - message.lane]
        after = (other,) if message.kind is Kind.NORMAL and other >= 0 else ()
        messages.append(Message(message.first, message.last, names[message.lane], after=after))
        newest[message.lane] = number
    return tuple(messages)


def printed_kinds(workload: Workload, cost: MessageCost, gamma: float) -> list[Kind]:
    """Algorithm 1 to the letter, but for what it needs to run: loops that reach layer 1, and m[L+1] = 0.

    The paper calls CalcCommTime anew after each change, but reads only what it computes of the layer at hand and of the
    one before: these are set here as CalcCommTime would set them.
    """
    L = len(workload.layers)  # noqa: N806
    # arrays 0..L+1, layer 1 next to the input
    m = [0.0, *workload.sizes()[::-1].tolist(), 0.0]
    tb = [0.0, *(layer.backward_seconds for layer in reversed(workload.layers)), 0.0]
    tau_b = [0.0] * (L + 2)  # line 3: tau_b[L] = 0
    for l in range(L - 1, 0, -1):  # noqa: E741  line 4
        tau_b[l] = tau_b[l + 1] + tb[l + 1]
    s = {}
    tau_c = [0.0] * (L + 2)
    for l in range(L, 1, -1):  # noqa: E741  line 7
        tau_c[l] = tau_b[l] + tb[l]  # line 26: layer l is still normal
        t_c = float(cost.seconds(m[l]))  # line 27
        if tau_c[l] + t_c <= tau_b[l] + tb[l - 1]:  # line 8
            s[l] = Kind.NORMAL
            continue
        a = float(cost.startup_seconds(m[l]))
        pen = 0.0
        if m[l + 1] > 0:
            t_before = float(cost.seconds(m[l + 1]))
            transfer = t_before - float(cost.startup_seconds(m[l + 1]))
            overlap = 1 - (tau_c[l] - tau_c[l + 1]) / t_before if t_before > 0 else 0.0
            pen = (gamma - 1) * transfer * overlap
        q2 = tau_b[l - 1] + tb[l - 1] < tau_c[l] + a  # line 11
        q3 = tau_c[l] + tb[l] + t_c + pen < tau_b[l - 1] + tb[l - 1]  # line 12
        if q2 and not q3:
            s[l] = Kind.MERGED
            m[l - 1], m[l] = m[l - 1] + m[l], 0.0  # lines 29, 30; lines 31, 32 are overwritten by 26, 27
        else:
            s[l] = Kind.SIMULTANEOUS
    s[1] = Kind.SIMULTANEOUS  # line 18
    return [s[l] for l in range(L, 0, -1)]  # noqa: E741
