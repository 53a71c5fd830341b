"""What ranks do to carry a message: random interleavings of their actions run without a network."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pytest
import torch

import tiny_plans as tiny
from gradsync import collectives
from gradsync.plan import Collective, Ref
from gradsync.rounds.lowering import Exchange, Range, exchanges
from gradsync.runtime import transfers
from gradsync.runtime.transfers import _cut, actions


class Rank:
    """A rank that does its actions; the transfers it has posted move when the network likes."""

    def __init__(self, number, todo, scratch, data):
        self.number, self.actions, self.data = number, todo, data
        self.scratch = np.full(scratch, np.nan)
        self.at = 0
        self.moved = {}  # transfer -> whether it has moved its data

    def view(self, action):
        _, _, (_, low, high, _), slot = action
        return self.data[low:high] if slot is None else self.scratch[slot : slot + high - low]

    @property
    def blocked(self):
        action = self.actions[self.at]
        return action.kind == "wait" and not self.moved[action.number]


def run(ranks, chance):
    """Any rank that can go on, or any pair of posted transfers, may be next; a transfer moves its data when it is."""
    posted = defaultdict(list)  # (kind, source, destination, rail) -> what is posted, first come first served
    while True:
        able = [rank for rank in ranks if rank.at < len(rank.actions) and not rank.blocked]
        pairs = [key for key in list(posted) if key[0] == "send" and posted[key] and posted["receive", *key[1:]]]
        if not able and not pairs:
            break
        if pairs and (not able or chance.random() < 0.3):
            key = chance.choice(pairs)
            (source, out), (destination, into) = posted[key].pop(0), posted["receive", *key[1:]].pop(0)
            destination.view(into)[:] = source.view(out)
            source.moved[out.number] = destination.moved[into.number] = True
            continue
        rank = chance.choice(able)
        action = rank.actions[rank.at]
        rank.at += 1
        if action.kind in ("send", "receive"):
            ends = (rank.number, action.part.peer) if action.kind == "send" else (action.part.peer, rank.number)
            rank.moved[action.number] = False
            posted[action.kind, *ends, action.part.rail].append((rank, action))
        elif action.kind in ("add", "copy"):
            mine = rank.data[action.part.low : action.part.high]
            mine[:] = mine + rank.view(action) if action.kind == "add" else rank.view(action)
    return [rank.number for rank in ranks if rank.at < len(rank.actions)]


def started(rounds, data, longest, slots):
    """Ranks that have done nothing yet; `rounds` has those of each rank."""
    ranks = []
    for number, values in enumerate(data):
        todo, scratch = actions(rounds[number], longest, slots)
        ranks.append(Rank(number, todo, scratch, values.copy()))
    return ranks


def message(algorithm, ranks, elements):
    ref = Ref("gradient", 3, 3 + elements)
    shape = tiny.levels(algorithm, ranks)
    return Collective(name="sum", algorithm=algorithm, shape=shape, root=ranks - 1, reads=(ref,), writes=(ref,))


@pytest.mark.parametrize("algorithm", collectives.names())
def test_every_order_of_events_ends_and_sums(algorithm):
    chance = random.Random(algorithm)
    for ranks in range(2, 10):
        for elements, longest, slots in ((1, 1, 1), (37, 4, 2), (37, 100, 2), (40, 3, 1), (90, 7, 3)):
            op = message(algorithm, ranks, elements)
            data = np.random.default_rng((ranks, elements)).integers(-9, 9, (ranks, elements + 5)).astype(float)
            at_work = started(
                [list(exchanges(op, rank, tuple(range(ranks)))) for rank in range(ranks)], data, longest, slots
            )
            assert run(at_work, chance) == []
            for rank, before in zip(at_work, data, strict=True):
                assert (rank.data[3:-2] == data[:, 3:-2].sum(0)).all(), (ranks, elements, longest, rank.number)
                assert (rank.data[:3] == before[:3]).all()
                assert (rank.data[-2:] == before[-2:]).all()


def exchange(*transfers, adds=True):
    """A round of (source, destination, low, high[, rail])."""

    def seen_by(rank):
        sends = [Range(to, low, high, *rail or (0,)) for at, to, low, high, *rail in transfers if at == rank]
        receives = [Range(at, low, high, *rail or (0,)) for at, to, low, high, *rail in transfers if to == rank]
        return Exchange(tuple(sends), tuple(receives), adds)

    return seen_by


MADE_UP = {
    "ranges that overlap in part": [exchange((0, 1, 0, 20), (1, 0, 10, 30)), exchange((1, 0, 0, 30), adds=False)],
    "two exchanges, each rank beginning with the other one": [
        exchange((1, 0, 8, 12, 1), (0, 1, 16, 24, 2), (0, 1, 8, 12, 2), (1, 0, 16, 24, 1))
    ],
    "ranges that change places": [exchange((0, 1, 0, 20), (1, 0, 0, 20), adds=False)],
    "several ranges between two ranks": [
        exchange((0, 1, 0, 7), (0, 1, 10, 20), (0, 1, 7, 10), (0, 1, 20, 30, 1), (1, 0, 0, 30)),
        exchange((1, 0, 0, 5), (0, 1, 5, 30), adds=False),
    ],
    "all around, the whole each time": [exchange((0, 1, 0, 30), (1, 2, 0, 30), (2, 0, 0, 30))] * 3,
    "sent on while it is still wanted": [
        exchange((0, 1, 0, 30)),
        exchange((1, 2, 0, 30), (0, 2, 0, 10, 1)),
        exchange((2, 0, 0, 15), (2, 1, 15, 30, 1), adds=False),
        exchange((0, 1, 0, 15), (1, 0, 15, 30), adds=False),
    ],
}


def in_step(rounds, data):
    """The data after the rounds, in step: all that is sent in a round is what was there before it."""
    data = data.copy()
    for each in rounds:
        before = data.copy()
        for rank in range(len(data)):
            view = each(rank)
            for peer, low, high, _ in view.receives:
                data[rank, low:high] = before[peer, low:high] + (data[rank, low:high] if view.adds else 0)
    return data


@pytest.mark.parametrize("name", MADE_UP)
def test_rounds_of_any_kind_give_what_they_give_in_step(name):
    rounds = MADE_UP[name]
    for seed in range(60):
        data = np.random.default_rng(seed).integers(-9, 9, (3, 30)).astype(float)
        at_work = started([[each(rank) for each in rounds] for rank in range(3)], data, 1 + seed % 8, 1 + seed % 3)
        assert run(at_work, random.Random(seed)) == []
        np.testing.assert_array_equal([rank.data for rank in at_work], in_step(rounds, data))


def by_chance(seed):
    """Rounds of three ranks, of ranges that may overlap, on two rails."""
    draw = np.random.default_rng(seed)
    rounds = []
    for _ in range(draw.integers(2, 6)):
        transfers_of_round, written, adds = [], np.zeros((3, 30), bool), bool(draw.integers(2))
        for _ in range(draw.integers(1, 6)):
            source, low = int(draw.integers(3)), 5 * int(draw.integers(6))
            to, high = (source + int(draw.integers(1, 3))) % 3, 5 * int(draw.integers(low // 5 + 1, 7))
            if not written[to, low:high].any():  # else their order would matter
                transfers_of_round.append((source, to, low, high, int(draw.integers(2))))
                written[to, low:high] = not adds
        rounds.append(exchange(*transfers_of_round, adds=adds))
    return rounds


def test_rounds_by_chance_give_what_they_give_in_step():
    for seed in range(300):
        rounds = by_chance(seed)
        data = np.random.default_rng(seed).integers(-9, 9, (3, 30)).astype(float)
        at_work = started([[each(rank) for each in rounds] for rank in range(3)], data, 2 + seed % 9, 1 + seed % 3)
        assert run(at_work, random.Random(seed)) == [], seed
        np.testing.assert_array_equal([rank.data for rank in at_work], in_step(rounds, data), err_msg=str(seed))


def test_receives_are_posted_before_they_are_needed_and_slots_are_few():
    op = message("ring", 4, 4000)
    todo, scratch = actions(list(exchanges(op, 1, (0, 1, 2, 3))), 250, 2)
    assert scratch == 2 * 256  # two slots of 250 elements, from the beginning of a cache line
    kinds = [action.kind for action in todo]
    assert kinds[:2] == ["receive"] * 2
    assert kinds.count("receive") == kinds.count("send") == 6 * 4
    assert kinds.count("wait") == 2 * 6 * 4
    assert kinds.count("add") == 3 * 4
    posted, needed = ([i for i, kind in enumerate(kinds) if kind == which] for which in ("receive", "add"))
    ahead = [sum(i < at for i in posted) for at in needed]
    assert all(count > number + 1 for number, count in enumerate(ahead))  # the next one is there already


@pytest.mark.parametrize("longest", [1000, 100])
@pytest.mark.parametrize("algorithm", ["ps_p2p", "bml"])
def test_a_round_to_several_peers_has_left_a_rail_before_the_next_begins_there(algorithm, longest):
    """Else data of the next round would share the link with what peers still wait for, and all would fall behind."""
    op = message(algorithm, 9, 9000)
    rounds = list(exchanges(op, 4, tuple(range(9))))
    assert any(len({part.peer for part in each.sends}) > 1 for each in rounds)
    todo, _ = actions(rounds, longest)
    round_of = {
        (part.peer, part.low): number for number, each in enumerate(rounds) for part in _cut(each.sends, longest)
    }
    waited, posted = set(), dict[int, list[tuple[int, int]]]()
    for action in todo:
        if action.kind == "wait":
            waited.add(action.number)
        if action.kind == "send":
            now = round_of[action.part.peer, action.part.low]
            earlier = [number for number, before in posted.get(action.part.rail, []) if before < now]
            assert waited.issuperset(earlier)
            posted.setdefault(action.part.rail, []).append((action.number, now))
    assert {len({now for _, now in each}) for each in posted.values()} == {2 if algorithm == "ps_p2p" else 4}


def test_a_ring_sends_on_what_has_come_while_the_rest_is_on_its_way():
    todo, _ = actions(list(exchanges(message("ring", 4, 4000), 1, (0, 1, 2, 3))), 100, 2)
    sent = [number for number, action in enumerate(todo) if action.kind == "send"]
    added = [number for number, action in enumerate(todo) if action.kind == "add"]
    assert sent[10] < added[1]  # the first chunk of the second round, before the second one of the first is added


def test_at_each_moment_receives_are_posted_before_sends():
    """The notice of a posted receive goes to the peer over the connection that data would fill."""
    todo, _ = actions(list(exchanges(message("ps_p2p", 4, 4000), 1, (0, 1, 2, 3))), 1000)
    kinds = [action.kind for action in todo]
    first = kinds.index("send")
    assert kinds[:first] == ["receive"] * 3
    second = max(number for number, kind in enumerate(kinds) if kind == "receive")
    later = [number for number, kind in enumerate(kinds) if kind == "send" and number > first + 3]
    assert second < min(later)


def test_messages_of_a_lane_share_their_scratch():
    scratch = transfers.Scratch()
    like = torch.zeros(1)
    first = scratch.of("network", like, 100)
    assert scratch.of("network", like, 60) is first
    assert scratch.of("other", like, 60) is not first
    assert scratch.of("network", like.double(), 10).dtype == torch.float64
    assert len(scratch.of("network", like, 200)) == 200
