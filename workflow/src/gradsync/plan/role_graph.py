"""Which operations of a role wait for which: by the order of a lane, and by what they name in `after`."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from gradsync.plan import Reply, Send


class RoleGraph:
    """Successors of each operation of a role, once for all its ranks and turns."""

    def __init__(self, body: tuple[Any, ...]):
        self.body = body
        index = {op.name: i for i, op in enumerate(body)}
        self.same: list[list[int]] = [[] for _ in body]  # released when the operation finishes
        self.next: list[list[int]] = [[] for _ in body]  # the same, in the next turn
        self.same_post: list[list[int]] = [[] for _ in body]  # released when a send is posted
        self.next_post: list[list[int]] = [[] for _ in body]
        self.waits = [0] * len(body)
        self.waits_first = [0] * len(body)  # in the first turn
        self.lane = [op.lane for op in body]
        lanes: dict[str, list[int]] = defaultdict(list)
        for i, op in enumerate(body):
            lanes[op.lane].append(i)
            for name in op.after:
                self.same[index[name]].append(i)
                self.waits[i] += 1
                self.waits_first[i] += 1
            for name in op.after_previous:
                self.next[index[name]].append(i)
                self.waits[i] += 1
        for order in lanes.values():
            for before, after in pairwise(order):
                (self.same_post if isinstance(body[before], Send | Reply) else self.same)[before].append(after)
                self.waits[after] += 1
                self.waits_first[after] += 1
            (self.next_post if isinstance(body[order[-1]], Send | Reply) else self.next)[order[-1]].append(order[0])
            self.waits[order[0]] += 1
