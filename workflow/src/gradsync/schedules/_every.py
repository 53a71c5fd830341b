"""All plans of a few layers: every grouping, number of pieces and choice of lanes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from gradsync.schedules import DEFAULT_LANE, Message, grouped
from gradsync.schedules._plans import Instance


def number(layers: int, lanes: int) -> int:
    """How many there are at most; choices of a lane for the first message count once, since they only swap names.

    A message in p pieces has lanes^p choices; each further layer is either merged or has as many.
    """
    choices = sum(lanes**pieces for pieces in range(1, lanes + 1))
    return choices * (choices + 1) ** (layers - 1) // lanes


def every(instance: Instance) -> Iterator[tuple[Message, ...]]:
    """Each of them; a message may also wait for a lane while another lane is free."""
    lanes = [f"{DEFAULT_LANE}{lane}" for lane in range(instance.lanes)]
    for cuts in product((False, True), repeat=instance.layers - 1):
        groups = grouped([*(i for i, cut in enumerate(cuts) if cut), instance.layers - 1])
        counts = (range(1, instance.most_pieces(group.first, group.last) + 1) for group in groups)
        for pieces in product(*counts):
            parts = [
                group._replace(part=(index, count))
                for group, count in zip(groups, pieces, strict=True)
                for index in range(count)
            ]
            for other_lanes in product(lanes, repeat=len(parts) - 1):
                used = (lanes[0], *other_lanes)
                if len(set(used)) > 1:
                    yield tuple(part._replace(lane=lane) for part, lane in zip(parts, used, strict=True))
