"""On which hosts the ranks of a command run: options of each command that starts ranks, keys of `elastic` in YAML."""

from __future__ import annotations

from dataclasses import dataclass

from gradsync.configuration.options import option

NO_SHARED_MEMORY = (
    "has memory that all ranks share, and hosts of the testbed have memory of their own: take another scheme"
)


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
