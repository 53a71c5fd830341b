"""Which ranks a rank reaches on each of its rails, if every rail is a network interface of its own.

On an ordinary machine there is one network, and this module has nothing to do. On a testbed the launcher passes, for
each rail, which ranks are in one switch. A process group of Gloo takes the interface that is named when the group is
made, and connects all its members, so that it must be within one switch. The connections of a lane differ from those
of other lanes by the lane's own name of the same interface.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from gradsync.errors import InputError

VARIABLE = "GRADSYNC_FABRIC"
INTERFACE = "GLOO_SOCKET_IFNAME"

Ranks = tuple[int, ...]


class Fabric(NamedTuple):
    """`switches[rail]`: the ranks in each switch of a rail; `interfaces[rail]`: what a rail is called on every host.

    `lanes` is the number of lanes that have interface names of their own; further lanes share them. Each rank of a host
    has names of its own: `place` is the number of this one among those `together`.
    """

    switches: tuple[tuple[Ranks, ...], ...]
    interfaces: tuple[str, ...]
    lanes: int = 1
    together: int = 1
    place: int = 0

    def parts(self, ranks: Ranks, rail: int) -> list[Ranks]:
        """Those of `ranks` that reach one another on a rail, group by group; raises InputError for an unknown rail."""
        if rail >= len(self.switches):
            raise InputError(
                f"a message on rail {rail}, hosts here have {len(self.switches)}: "
                "the testbed's topology is not the plan's"
            )
        groups = [tuple(rank for rank in ranks if rank in switch) for switch in self.switches[rail]]
        return [part for part in groups if len(part) > 1]

    def _alias(self, rail: int, lane: int) -> str:
        """What a rail is called on a lane by this rank."""
        number = lane % self.lanes * self.together + self.place
        return f"{self.interfaces[rail]}:{number}" if number else self.interfaces[rail]

    @contextmanager
    def on(self, rail: int, lane: int = 0) -> Iterator[None]:
        """Have groups that are made meanwhile connect over a rail, with the name of a lane."""
        before = os.environ[INTERFACE]
        os.environ[INTERFACE] = self._alias(rail, lane)
        try:
            yield
        finally:
            os.environ[INTERFACE] = before


@cache
def fabric() -> Fabric | None:
    """The fabric that the launcher has passed; None if all ranks share one network."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    content = json.loads(text)
    switches = tuple(tuple(tuple(ranks) for ranks in rail) for rail in content["switches"])
    place = int(os.environ.get("LOCAL_RANK", 0))
    return Fabric(switches, tuple(content["interfaces"]), content["lanes"], content["together"], place)


def environment(
    switches: Sequence[Sequence[Sequence[int]]], interfaces: Sequence[str], lanes: int = 1, together: int = 1
) -> dict[str, str]:
    """The environment that passes a fabric to ranks."""
    content = {"switches": switches, "interfaces": interfaces, "lanes": lanes, "together": together}
    return {VARIABLE: json.dumps(content)}
