"""How much faster BML sums than a parameter server, on emulated links of the same rate; a program of nine ranks.

Target: BML on BCube(3,2) is at least 1.9 times as fast (theory: 2) from 4 MB up as a peer-to-peer parameter server on a
switch; the size from which it is the faster one is shown. Each has a testbed of its own, in turn (A B B A), since the
networks differ. The sums of the timed messages themselves are compared with the sum that each rank works out alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from gradsync import collectives, topologies
from gradsync.benchmarks import rows
from gradsync.benchmarks.rows import Row
from gradsync.errors import RunError
from gradsync.files.results import write_whole
from gradsync.plan import Collective, Ref
from gradsync.rounds import flow_level
from gradsync.rounds.lowering import rails
from gradsync.runtime.group import Groups, process_group
from gradsync.runtime.launch import launch
from gradsync.runtime.transfers import Scratch, Transfers
from gradsync.statistics.intervals import CONFIDENCE, median_interval, shown
from gradsync.testbed.namespaces import testbed
from gradsync.testbed.wiring import cables
from gradsync.topologies import Speeds

RATE = 2e8  # bits per second, of every link of both networks
LENET5 = 13_098_536  # bytes of its gradients
SIZES = (*(2**exponent for exponent in range(14, 22)), 4_000_000, 2**23, LENET5)
TARGET, TARGET_FROM = 1.9, 4e6  # from so many bytes on

MESSAGES = 6  # of a block; sums of nine ranks grow ninefold with each and stay exact so far: 9 * 9 * 9**5 < 2**24
LARGEST_DRAWN = 9
SECONDS_PER_SIZE = 0.6  # in a launch
FEWEST, MOST = 2, 12  # blocks of a size in a launch
LANE = "network"
REQUEST, TIMES = "request.json", "times.json"  # files that the ranks read and write


class Contender(NamedTuple):
    """A collective on the network that it is made for."""

    collective: str
    topology: str


BML, SERVER = Contender("bml", "bcube:3,2"), Contender("ps_p2p", "switch:9")

Times = dict[int, list[float]]
"""bytes -> seconds of each message."""


def in_turn(folder: Path, config: str, sizes: Sequence[int] = SIZES) -> dict[Contender, list[Times]]:
    """The times of two launches of each contender, each on a testbed of its own."""
    times: dict[Contender, list[Times]] = {BML: [], SERVER: []}
    for number, contender in enumerate((BML, SERVER, SERVER, BML), 1):
        title = f"{contender.collective} on {contender.topology}, {RATE / 1e6:g} Mbit/s a link: launch {number} of 4"
        print(f"benchmark testbed: {title}", file=sys.stderr, flush=True)
        times[contender].append(launched(contender, folder, config, sizes))
    return times


def launched(contender: Contender, folder: Path, config: str, sizes: Sequence[int]) -> Times:
    """The times of the messages of one launch, on a testbed that is made for it; ranks write to `folder`."""
    topology = topologies.parse(contender.topology)
    shape = collectives.shape_on(contender.collective, topology, topology.hosts)
    request = {"collective": contender.collective, "shape": shape, "sizes": sizes}
    write_whole(folder / REQUEST, json.dumps(request))
    with testbed(cables(topology), RATE) as hosts:
        launch(["benchmark", "testbed", "--config", config, "--results", str(folder)], topology.hosts, hosts)
    times = json.loads((folder / TIMES).read_text())
    return {int(size): seconds for size, seconds in times.items()}


def comparison(times: Mapping[Contender, Sequence[Times]]) -> list[Row]:
    """A row per size: seconds of both and their ratio, each with its 95 % interval, and what the links alone take."""
    of_sizes = []
    for size in times[BML][0]:
        bml, server = ([s for launch in times[contender] for s in launch[size]] for contender in (BML, SERVER))
        interval = ratio_interval(server, bml)
        has_target = size >= TARGET_FROM
        row: Row = {
            "task": f"{SERVER.collective} on {SERVER.topology} / {BML.collective} on {BML.topology}, {size} B",
            "bytes": size,
            **rows.ratio(interval),
        }
        for contender, seconds in ((BML, bml), (SERVER, server)):
            name = contender.collective
            bottom, middle, top = median_interval(seconds, CONFIDENCE)
            row |= {f"{name}_seconds": middle, f"{name}_seconds_low": bottom, f"{name}_seconds_high": top}
            row[f"{name}_launch_seconds"] = [float(np.median(launch[size])) for launch in times[contender]]
            row[f"{name}_line_rate_seconds"] = line_rate_seconds(contender, size)
            row[f"{name}_messages"] = len(seconds)
        row |= {
            "bits_per_second": RATE,
            "conformance": "the sums of all timed messages are exact",
            "target_ratio": TARGET if has_target else None,
            "met": not has_target or interval[1] >= TARGET,
        }
        of_sizes.append(row)
    return of_sizes


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float | None, float, float | None]:
    """(low, ratio, high) of two medians whose samples are no pairs: both lie in their intervals with 95 % at least.

    The interval holds for messages of these launches; the medians of launches show how launches differ.
    """
    confidence = 1 - (1 - CONFIDENCE) / 2
    (low, middle, high), (base_low, base, base_high) = (
        median_interval(values, confidence) for values in (above, below)
    )
    if low is None or high is None or base_low is None or base_high is None:
        return None, middle / base, None
    return low / base_high, middle / base, high / base_low


def line_rate_seconds(contender: Contender, size: int) -> float:
    """Of a message that takes no more than the link that carries most: 2(N-1)/N M/R, and a k-th of it for BML."""
    load = flow_level.cost(contender.collective, topologies.parse(contender.topology), Speeds()).link_load
    return load * size * 8 / RATE


def crossing(of_sizes: Sequence[Row]) -> Row:
    """The size from which on BML is the faster one: between two that were measured, even in the logarithm of sizes."""
    sizes, ratios = ([row[key] for row in of_sizes] for key in ("bytes", "ratio"))
    slower = [i for i, ratio in enumerate(ratios) if ratio < 1]
    row: Row = {"task": "BML is the faster one from this size on", "bytes": None, "met": True}
    if not slower:
        return row | {"task": f"BML is the faster one at every size from {sizes[0]} B on"}
    last = slower[-1]
    if last + 1 == len(sizes):
        return row | {"task": f"BML is not the faster one up to {sizes[-1]} B"}
    log_size = np.interp(1.0, ratios[last : last + 2], np.log(sizes[last : last + 2]))
    return row | {"bytes": round(float(np.exp(log_size)))}


def table(of_sizes: Sequence[Row]) -> str:
    """Text for people: a line per size, milliseconds with their intervals, and those of the links alone."""

    def cell(row: Row, key: str, scale: float, form: str) -> str:
        return shown((row[f"{key}{end}"] for end in ("", "_low", "_high")), form, scale)

    lines = [("bytes", "BML ms", "at line rate", "PS ms", "at line rate", "PS / BML")]
    for row in of_sizes:
        cells = [str(row["bytes"])]
        for name in (BML.collective, SERVER.collective):
            cells.append(cell(row, f"{name}_seconds", 1e3, ".1f"))
            cells.append(f"{1e3 * row[f'{name}_line_rate_seconds']:.1f}")
        lines.append((*cells, cell(row, "ratio", 1, ".2f")))  # type: ignore[arg-type]
    return "\n".join(
        "".join(f"{text:>{width}}" for text, width in zip(line, (9, 26, 14, 26, 14, 22), strict=True)) for line in lines
    )


# What each of the ranks runs


def on_a_rank(folder: Path) -> None:
    """Time the messages of the request in `folder`; rank 0 writes their times there."""
    request = json.loads((folder / REQUEST).read_text())
    with process_group() as (rank, ranks):
        times = message_seconds(request["collective"], tuple(request["shape"]), request["sizes"], rank, ranks)
        if rank == 0:
            write_whole(folder / TIMES, json.dumps(times))


def message_seconds(algorithm: str, shape: tuple[int, ...], sizes: Sequence[int], rank: int, ranks: int) -> Times:
    """From the end of a message to the end of the next, mean of the ranks; collective over all of at most nine.

    Raises RunError if a sum is wrong.
    """
    groups, everyone = Groups(), tuple(range(ranks))
    for rail in range(rails(algorithm, shape, 0)):
        groups.add(LANE, everyone, rail)
    of_rank, total = _drawn(max(sizes) // 4, rank, ranks)
    buffers = [torch.empty(size // 4) for size in sizes]
    scratch, senders = Scratch(), []
    for tag, buffer in enumerate(buffers):
        ref = (Ref("gradient", 0, len(buffer)),)
        op = Collective(name="message", lane=LANE, algorithm=algorithm, shape=shape, reads=ref, writes=ref)
        senders.append(Transfers(op, rank, tuple(range(ranks)), buffer, groups, tag=tag, scratch=scratch))

    def block(number: int) -> list[float]:
        buffer = buffers[number]
        buffer.copy_(of_rank[: len(buffer)])
        dist.barrier()
        ends = []
        for _ in range(MESSAGES):
            senders[number].run()
            ends.append(time.perf_counter())
        # every message after the first sums values that all ranks share
        if not torch.equal(buffer, total[: len(buffer)] * float(ranks) ** (MESSAGES - 1)):
            raise RunError(f"rank {rank}: benchmark: {algorithm} gave a wrong sum of {sizes[number]} B")
        return list(np.diff(ends))

    of_sizes = [block(number) for number in range(len(sizes))[::-1]][::-1]  # the largest first: connections have grown
    typical = torch.tensor([float(np.median(seconds)) for seconds in of_sizes])
    dist.all_reduce(typical, op=dist.ReduceOp.MAX)
    blocks = np.clip(SECONDS_PER_SIZE / (MESSAGES - 1) / typical.numpy(), FEWEST, MOST).astype(int)
    for turn in range(1, MOST):
        for number in np.flatnonzero(blocks > turn).tolist():
            of_sizes[number] += block(number)
    groups.close()
    totals = [torch.tensor(seconds, dtype=torch.float64) for seconds in of_sizes]
    for seconds in totals:
        dist.all_reduce(seconds)
    return {size: (seconds / ranks).tolist() for size, seconds in zip(sizes, totals, strict=True)}


def _drawn(elements: int, rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(the values of this rank, the sum of those of all): whole numbers."""
    total = torch.zeros(elements)
    for other in range(ranks):
        generator = torch.Generator().manual_seed(other)
        drawn = torch.randint(-LARGEST_DRAWN, LARGEST_DRAWN + 1, (elements,), generator=generator).float()
        total += drawn
        if other == rank:
            of_rank = drawn
    return of_rank, total
