"""`gradsync collective`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from gradsync.errors import InputError, RunError
from gradsync.experiments.costs import positive
from gradsync.limits import MOST_TRANSFERS

SILENT_SECONDS = 3.0  # before a long computation tells how far it is
REPORT_SECONDS = 1.0
REPORT_SECONDS_TO_A_FILE = 30.0


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes. Numbers are read by `run`, which says what is wrong with them."""
    parser.add_argument("name", metavar="NAME", help="ring, bml, ps_p2p, pairwise, ...")
    parser.add_argument(
        "--kind",
        choices=("all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast", "all_to_all"),
        help="the whole of it, or the half that is another collective (default: the whole)",
    )
    parser.add_argument("--root", default="0", metavar="RANK", help="where it reduces to, or broadcasts from")
    parser.add_argument("--chunks", metavar="C", help="into how many a pipeline cuts the message (chain, tree)")
    parser.add_argument("--topology", metavar="NAME[:NUMBERS]", help="as bcube:3,2 (default: what it is made for)")
    parser.add_argument("--ranks", metavar="N", help="that fill the topology in order (default: all that it holds)")
    parser.add_argument("--bytes", required=True, metavar="M", help="of the message")
    parser.add_argument("--alpha", required=True, metavar="SECONDS", help="start-up of a round")
    parser.add_argument(
        "--bandwidth",
        required=True,
        metavar="BYTES_PER_SECOND|KIND=..,KIND=..",
        help="of a link, or of each kind of links (dense_gpu: inside, between)",
    )
    parser.add_argument("--latency", default="0", metavar="SECONDS|KIND=..", help="of a link, on top of alpha")
    parser.add_argument("--gamma", default="0", metavar="SECONDS_PER_BYTE", help="of adding")
    parser.add_argument("--check", action="store_true", help="also check symbolically what every rank gets")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Time one collective on a topology at flow level, count its rounds and switches, and check what ranks get."""
    from gradsync import collectives
    from gradsync.rounds import flow_level, symbolic

    if options.name == collectives.NATIVE:
        raise InputError(
            f"collective {options.name!r} is the backend's own, which has no rounds to time: choose one of "
            f"{', '.join(collectives.described())}"
        )
    ranks = None if options.ranks is None else _whole("--ranks", options.ranks)
    topology = _topology(options.topology, collectives.topology_of(options.name), ranks)
    ranks = ranks or topology.hosts
    kind = options.kind or collectives.kinds(options.name, (2,))[0]
    root = _root(options.root, ranks)
    chunks = None if options.chunks is None else _whole("--chunks", options.chunks)
    try:
        shape = collectives.shape_on(options.name, topology, ranks, kind)
        collectives.pieces(options.name, shape, chunks)
        if options.check:
            symbolic.refuse_size(options.name, shape, kind, chunks)
    except InputError as error:
        raise InputError(f"--topology {topology.name} with {ranks} ranks: {error}") from None
    size, speeds = _whole("--bytes", options.bytes), _speeds(options, topology)
    gamma = positive("--gamma", options.gamma, "seconds per byte, not negative")
    watch = _progress("timed")
    how: dict[str, Any] = {"root": root, "kind": kind, "chunks": chunks}
    cost = flow_level.cost(options.name, topology, speeds, ranks, **how, add_seconds_per_byte=gamma, watch=watch)
    seconds = cost.seconds(size)
    factor = collectives.bus_factor(kind, ranks)
    equipment = topology.equipment()
    answer: dict[str, Any] = {
        "collective": options.name,
        "kind": kind,
        "topology": topology.name,
        "ranks": ranks,
        "bytes": size,
        "seconds": seconds,
        **({"busbw_bytes_per_second": factor * size / seconds} if seconds else {}),
        "a_seconds": cost.line.a,
        "b_seconds_per_byte": cost.line.b,
        "rounds": cost.rounds,
        "transfers": cost.transfers,
        "bytes_sent_per_rank": cost.sent * size,
        "most_loaded_link_bytes": cost.link_load * size,
        "most_loaded_link_kind": cost.link_kind,
        **equipment._asdict(),
    }
    if options.check:
        try:
            symbolic.verify(options.name, shape, root, watch=_progress("checked"), kind=kind, chunks=chunks)
        except RunError as error:
            raise RunError(str(error), answer | {"check": "failed", "failure": str(error)}) from None
        answer["check"] = "passed"
    return answer


def _topology(text: str | None, made_for: str, ranks: int | None) -> Any:
    from gradsync import topologies

    if text is None and ranks is None:
        raise InputError(f"give --topology (with numbers, as bcube:3,2), or --ranks, for which a {made_for} is made")
    text = text or made_for
    if ranks is None and ":" not in text:
        topologies.get(text)
        raise InputError(f"--topology {text}: write its numbers (as bcube:3,2), or give --ranks, for which one is made")
    try:
        return topologies.parse(text, ranks)
    except InputError as error:
        raise InputError(f"{'--topology' if ranks is None else '--ranks'}: {error}") from None


def _speeds(options: argparse.Namespace, topology: Any) -> Any:
    from gradsync.topologies import Speeds

    bandwidth = _by_kind("--bandwidth", options.bandwidth, "bytes per second, above 0", least=sys.float_info.min)
    latency = _by_kind("--latency", options.latency, "seconds, not negative")
    for option, text, speeds in (
        ("--bandwidth", options.bandwidth, Speeds(bandwidth=bandwidth)),
        ("--latency", options.latency, Speeds(latency=latency)),
    ):
        try:
            speeds.of(topology)
        except InputError as error:
            raise InputError(f"{option} {text}: {error}") from None
    return Speeds(positive("--alpha", options.alpha, "seconds, not negative"), bandwidth, latency)


def _by_kind(option: str, text: str, meaning: str, least: float = 0.0) -> float | Mapping[str, float]:
    """A number, or one for each kind of links: `inside=1e11,between=1e9`."""
    if "=" not in text:
        return positive(option, text, meaning, least)
    values: dict[str, float] = {}
    for part in text.split(","):
        kind, equals, value = part.partition("=")
        if not equals or not kind or kind in values:
            raise InputError(f"{option} {text}: give one number, or KIND=NUMBER,KIND=NUMBER with each kind once")
        values[kind] = positive(f"{option} {kind}", value, meaning, least)
    return values


def _whole(option: str, text: str) -> int:
    """A whole number of at least 1; `1e6` is one too."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < inf or value != int(value):
        raise InputError(f"{option} {text}: must be a whole number of at least 1")
    return int(value)


def _root(text: str, ranks: int) -> int:
    if not text.isdecimal() or int(text) >= ranks:
        raise InputError(f"--root {text}: must be one of the ranks, 0 to {ranks - 1}")
    return int(text)


def _progress(done: str) -> Callable[[int, int], None]:
    """What tells how far a long computation is, and ends one that would take hours."""
    often = REPORT_SECONDS if sys.stderr.isatty() else REPORT_SECONDS_TO_A_FILE
    start = last = time.monotonic()

    def tell(rounds: int, transfers: int) -> None:
        nonlocal last
        if transfers > MOST_TRANSFERS:
            raise InputError(
                f"more than {MOST_TRANSFERS:.0e} transfers to be {done}: take fewer ranks, or fewer rounds"
            )
        now = time.monotonic()
        if now - start > SILENT_SECONDS and now - last > often:
            last = now
            print(f"gradsync: {rounds} rounds, {transfers} transfers {done} in {now - start:.0f} s", file=sys.stderr)

    return tell
