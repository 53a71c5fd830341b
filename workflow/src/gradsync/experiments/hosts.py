"""The testbed that the ranks of a command run on: what is refused, and its hosts while they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradsync.configuration.options import option
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.testbed.description import Description
    from gradsync.testbed.namespaces import Testbed


@dataclass(frozen=True, kw_only=True)
class OnTestbed:
    """Options of commands whose ranks may run on hosts of a testbed."""

    testbed: str | None = option(
        None,
        "ranks run on hosts of their own on this machine (Linux; root, or a user namespace), wired as a topology: "
        "switch, bcube:3,2, dense_gpu:2,4; or as a file says, with its rates",
        metavar="NAME[:N,..]|FILE.json",
    )
    rate: float = option(4e8, "--testbed NAME: of a link, each way", metavar="BITS_PER_SECOND", needs="testbed")
    flow_rate: float | None = option(
        None,
        "--testbed NAME: the most that two hosts send each other over a link",
        metavar="BITS_PER_SECOND",
        needs="testbed",
        unset="all of it",
    )


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
