"""The testbed that the ranks of a command run on: what is refused, and its hosts while they are needed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.testbed.description import Description
    from gradsync.testbed.namespaces import Testbed


def described(options: argparse.Namespace, numbers_of_ranks: Sequence[int]) -> Description | None:
    """The testbed that so many ranks run on, where one is asked for; raises InputError where they can't."""
    from gradsync.testbed import description
    from gradsync.testbed.namespaces import refuse_commands

    if not getattr(options, "testbed", None):
        return None
    if options.device != "cpu":
        raise InputError("--testbed: hosts of a testbed have no GPUs: leave --device out")
    lanes = options.lanes if getattr(options, "what", "") == "contention" else 1
    found = description.read(options.testbed, options.rate, options.flow_rate, lanes)
    refuse_commands()
    for ranks in numbers_of_ranks:
        found.cables(ranks)
    return found


def enter(options: argparse.Namespace) -> None:
    """Comes back where a testbed can be made, if one is asked for; else runs the command again where it can.

    Raises InputError where it can't be made anywhere here.
    """
    from gradsync.testbed import privileges

    if getattr(options, "testbed", None):
        privileges.enter()


@contextmanager
def hosts(described: Description | None, ranks: int) -> Iterator[Testbed | None]:
    """The testbed, while it is needed; None on an ordinary machine."""
    from gradsync.testbed.namespaces import testbed

    if described is None:
        yield None
        return
    told = described.bits_per_second, described.flow_bits_per_second, described.latency_seconds, described.lanes
    with testbed(described.cables(ranks), *told) as made:
        yield made
