"""The testbed that the ranks of a command run on: what is refused, and its hosts while they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradsync.configuration.on_testbed import OnTestbed
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.testbed.description import Description
    from gradsync.testbed.namespaces import Testbed


def described(
    options: OnTestbed, numbers_of_ranks: Sequence[int], device: str = "cpu", lanes: int = 1
) -> Description | None:
    """The testbed that so many ranks run on, if options name one; raises InputError if they can't run on it."""
    from gradsync.testbed import description
    from gradsync.testbed.namespaces import refuse_commands

    if not options.testbed:
        return None
    if device != "cpu":
        raise InputError("--testbed: hosts of a testbed have no GPUs: leave --device out")
    testbed = description.read(options.testbed, options.rate, options.flow_rate, lanes)
    for ranks in numbers_of_ranks:
        testbed.cables(ranks)
    refuse_commands()
    return testbed


def enter(options: OnTestbed) -> None:
    """Comes back if no testbed is named, or one can be made here; else runs the command again where it can be made.

    Raises InputError if it can't be made anywhere on this machine.
    """
    from gradsync.testbed import privileges

    if options.testbed:
        privileges.enter()


@contextmanager
def hosts(testbed: Description | None, ranks: int) -> Iterator[Testbed | None]:
    """The hosts of a testbed, while they are needed; None on an ordinary machine."""
    from gradsync.testbed import namespaces

    if testbed is None:
        yield None
        return
    rates = testbed.bits_per_second, testbed.flow_bits_per_second, testbed.latency_seconds, testbed.lanes
    with namespaces.testbed(testbed.cables(ranks), *rates) as network:
        yield network
