"""Measure all-reduce times between the running ranks, and those of other kinds: the points that costs are fitted to.

Columns and bus bandwidth are those of nccl-tests, with the median as time: algbw is bytes over seconds, busbw is algbw
times a factor of the kind (`collectives.bus_factor`), which compares with the speed of the link for any number of
ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist

from gradsync.collectives import ALL_REDUCE, NATIVE, SUMS, bus_factor
from gradsync.configuration.scheme import Scheme
from gradsync.costs import fitted, kinds
from gradsync.plan import WORLD, Axis, Kind
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.runtime.timing import WARM_UP, all_reduce_seconds, collective_seconds
from gradsync.statistics.intervals import median_interval

REPEATS = 120  # a small message has many: some of them wait a whole time slice for a core, most do not
SECONDS_PER_SIZE = 0.3
SIZES_PER_DECADE = 4
PROBE = 256 * 1024  # bytes
WITHIN_SIZES, WITHIN_REPEATS = 8, 45  # of a measurement within so many seconds
LEAST_MESSAGES = WARM_UP + WITHIN_REPEATS // 15  # of a size: those that are not timed, and the fewest that are


class Effort(NamedTuple):
    """How much is measured: times of a message at most, seconds of a size, sizes per decade."""

    repeats: int
    seconds_per_size: float
    sizes_per_decade: int


WHOLE = Effort(REPEATS, SECONDS_PER_SIZE, SIZES_PER_DECADE)
BRIEF = Effort(REPEATS // 3, SECONDS_PER_SIZE / 5, SIZES_PER_DECADE // 2)  # of kinds beside the all-reduce of a launch


class AllReducePoint(NamedTuple):
    """One message size between `ranks` ranks: the median of its times, the 95 % interval of that median, the mean.

    The interval is of `repeats` messages, in turn with those of other sizes; None if they are too few.
    Planners take the mean: it is what adds up over several messages if some of them are late. `collective` is that of a
    scheme (`Scheme.measured_as`), empty for the backend's own. `kind` is as in `costs/kinds.py`, empty for an
    all-reduce of all ranks.
    """

    ranks: int
    bytes: int
    seconds: float
    seconds_low: float | None
    seconds_high: float | None
    algbw_bytes_per_second: float
    busbw_bytes_per_second: float
    mean_seconds: float
    collective: str = ""
    repeats: int = 0
    kind: str = ""


def sizes(smallest: int, largest: int, per_decade: int = SIZES_PER_DECADE) -> list[int]:
    """Message sizes in bytes: whole float32 elements, even on a logarithmic scale, both ends among them."""
    first, last = (max(4, -(-size // 4) * 4) for size in (smallest, largest))
    count = max(2, round(np.log10(max(last / first, 1.0)) * per_decade) + 1)
    return sorted({int(size) // 4 * 4 for size in np.geomspace(first, last, count)} | {first, last})


def sizes_in_chunks(smallest: int, largest: int) -> list[int]:
    """The same for our own collectives, which send in chunks: twice as many in the largest decade.

    Seconds per byte bend in that decade, in which messages carry most of the bytes: a tensor on one of 9 servers,
    emulated, took 0.55 s per MB at 1.3 MB, 0.47 at 4, 0.39 at 13.
    """
    bend = max(smallest, largest // 10)
    return sorted({*sizes(smallest, bend), *sizes(bend, largest, 2 * SIZES_PER_DECADE)})


def collective(text: str) -> Scheme:
    """`bml`, or `bml@bcube:3,2`: a collective, and its topology if that is not the one that it is made for.

    Raises InputError if they don't exist or don't go together.
    """
    name, _, topology = text.partition("@")
    scheme = Scheme(name=text, schedule="single", collective=name, topology=topology)
    scheme.refuse_nonsense("--collective")
    return scheme


def measure(
    smallest: int,
    largest: int,
    device: Device = PROCESSOR,
    chosen: Sequence[str] = (NATIVE,),
    largest_of_our_own: int | None = None,
    of_kinds: Sequence[str] = (ALL_REDUCE,),
    axes: tuple[Axis, ...] = (),
    effort: Effort = WHOLE,
) -> dict[str, Any]:
    """Seconds of each repeat by collective and message size, the same by kind, and what they were measured with.

    `largest_of_our_own`: largest message of collectives that are not the backend's; None: the same. `of_kinds`: those
    of the backend's own, as they are executed, between all ranks and between the groups of each of `axes`, or over one
    (`all_gather@local`), with this `effort`. Collective over the running ranks.
    """
    others = OtherWork()
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    seconds: dict[str, dict[int, list[float]]] = {}
    for scheme in map(collective, chosen):
        key = scheme.measured_as(ranks)
        if key:
            in_chunks = sizes_in_chunks(smallest, largest_of_our_own or largest)
            shape = scheme.shape(ranks)
            seconds[key] = collective_seconds(scheme.collective, shape, in_chunks, REPEATS, SECONDS_PER_SIZE)
        else:
            seconds[key] = all_reduce_seconds(sizes(smallest, largest), REPEATS, SECONDS_PER_SIZE, device=device)
    return {
        "seconds": seconds,
        "kinds": _of_kinds(sizes(smallest, largest, effort.sizes_per_decade), of_kinds, axes, effort, device),
        "provenance": {
            "repeats": f"{REPEATS // 15} to {REPEATS}, about {SECONDS_PER_SIZE:g} s a size",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            **machines(),
            **others.share(),
            **device.provenance(),
        },
    }


def within(seconds: float, smallest: int, largest: int, device: Device = PROCESSOR) -> dict[int, list[float]]:
    """bytes -> seconds of each repeat of the backend's own all-reduce, in about so many `seconds`; collective.

    Two probes tell what messages take; if the largest would take too long, the largest of these is a half of it, or a
    half of that, as often as needed, but not below the larger probe.
    """
    ends = [smallest, max(2 * smallest, min(largest, PROBE))]
    probed = all_reduce_seconds(ends, WITHIN_REPEATS, 0.0, device=device)
    low, high = (float(np.median(times)) for times in probed.values())
    slope = max(0.0, high - low) / (ends[1] - ends[0])

    def least(size: int) -> float:
        return sum(LEAST_MESSAGES * (low + slope * (each - smallest)) for each in _spread(smallest, size))

    while largest > ends[1] and least(largest) > seconds / 2:
        largest = max(ends[1], largest // 2)
    shared = [largest]  # sums may differ in their last bit from rank to rank
    dist.broadcast_object_list(shared, 0)
    chosen = _spread(smallest, max(shared[0], ends[1]))
    return all_reduce_seconds(chosen, WITHIN_REPEATS, seconds / 2 / len(chosen), device=device)


def _spread(smallest: int, largest: int) -> list[int]:
    return sorted({int(size) // 4 * 4 for size in np.geomspace(smallest, largest, WITHIN_SIZES)})


def _of_kinds(
    message_sizes: list[int], chosen: Sequence[str], axes: tuple[Axis, ...], effort: Effort, device: Device
) -> dict[str, dict[int, list[float]]]:
    """Seconds of each repeat by kind and message size, of all but all-reduces of all ranks."""
    ways: dict[str, tuple[Kind, str]] = {}
    for text in chosen:
        name, _, only = text.partition("@")
        kind = cast("Kind", name)  # the launcher refuses what is none
        if kind != ALL_REDUCE and only in ("", WORLD):
            ways[kind] = kind, WORLD
        for axis in axes:
            if axis.size > 1 and only in ("", axis.name):
                ways[kinds.over(kind, axis.name, axis.size)] = kind, axis.name
    return {
        name: collective_seconds(
            NATIVE,
            (),
            message_sizes,
            effort.repeats,
            effort.seconds_per_size,
            kind=kind,
            over=over,
            axes=() if over == WORLD else axes,
            device=device,
        )
        for name, (kind, over) in ways.items()
    }


def point(ranks: int, size: int, seconds: Sequence[float], collective: str = "", kind: str = "") -> AllReducePoint:
    """The point of repeated times of a message of `size` bytes."""
    key, _, places = kind.partition(":")
    low, middle, high = median_interval(seconds)
    bandwidth = size / middle
    bus = bandwidth * bus_factor(key.partition("@")[0] or ALL_REDUCE, int(places or ranks))
    mean, repeats = float(np.mean(seconds)), len(seconds)
    return AllReducePoint(ranks, size, middle, low, high, bandwidth, bus, mean, collective, repeats, kind)


def to_csv(points: Sequence[AllReducePoint], provenance: Mapping[str, Any]) -> str:
    """The file that `--allreduce` reads: provenance as comments, one per line, then the columns of `AllReducePoint`."""
    comments = [f"# {key}: {json.dumps(value)}" for key, value in provenance.items()]
    return "\n".join([*comments, ",".join(AllReducePoint._fields), *(_line(each) for each in points)]) + "\n"


def _line(point: AllReducePoint) -> str:
    return ",".join("" if cell is None else cell if isinstance(cell, str) else repr(cell) for cell in point)


def columns(points: Sequence[AllReducePoint]) -> str:
    """The points as text for people: the columns of nccl-tests, and the collective or kind."""
    names = ("ranks", "size", "count", "type", "redop", "time", "mean", "algbw", "busbw")
    units = ("", "(B)", "(elements)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)")
    rows = [
        (
            *(p.ranks, p.bytes, p.bytes // 4, "float", "sum" if _sums(p.kind) else "none"),
            *(f"{seconds * 1e6:.1f}" for seconds in (p.seconds, p.mean_seconds)),
            *(f"{bandwidth / 1e9:.3f}" for bandwidth in (p.algbw_bytes_per_second, p.busbw_bytes_per_second)),
        )
        for p in points
    ]
    named = [p.collective or p.kind for p in points]
    last_column = ["collective" if any(named) else "", "", *named]
    return "\n".join(
        ("".join(f"{cell:>12}" for cell in row) + f"  {collective}").rstrip()
        for row, collective in zip((names, units, *rows), last_column, strict=True)
    )


def _sums(kind: str) -> bool:
    return not kind or kind.partition(":")[0].partition("@")[0] in SUMS


def fits(points: Sequence[AllReducePoint]) -> list[dict[str, Any]]:
    """By ranks, collective and kind: the cost that planners take (of the means), and how good one line a + b m is."""
    rows = []
    in_order = sorted(points, key=lambda p: p.ranks)
    for ranks, collective, kind in dict.fromkeys((p.ranks, p.collective, p.kind) for p in in_order):
        chosen = [p for p in points if (p.ranks, p.collective, p.kind) == (ranks, collective, kind)]
        m, t = [p.bytes for p in chosen], [p.mean_seconds for p in chosen]
        cost = fitted.fit(m, t)
        a, b, r_squared = fitted.straight_line(m, t)
        rows.append(
            {
                "ranks": ranks,
                **({"collective": collective} if collective else {}),
                **({"kind": kind} if kind else {}),
                "pieces": cost.pieces(),
                "residual": cost.residual,
                "line": {"a": a, "b": b, "r_squared": r_squared},
            }
        )
    return rows
