"""How fast a collective of our own transfers is, against the backend's own all-reduce; a program of four ranks.

Targets, four ranks on one machine, 64 KiB to 64 MiB of float32: the busbw of our ring is at least 0.9 of that of Gloo's
own all-reduce, and its reduce-scatter and all-gather, one after the other, take at most 1.02 times as long as the whole
ring (medians of at least 20 pairs). Both sides have their turns in one launch (A B B A), over the same buffer. The sums
of the timed messages themselves are compared with the sum that each rank works out alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync.benchmarks import collective_scaling, rows
from gradsync.benchmarks.rows import Row
from gradsync.collectives import ALL_GATHER, ALL_REDUCE, POSTCONDITION, REDUCE_SCATTER, bus_factor
from gradsync.errors import RunError
from gradsync.files.results import write_whole
from gradsync.plan import Collective, Ref
from gradsync.runtime.group import Groups, process_group
from gradsync.runtime.launch import launch
from gradsync.runtime.transfers import Transfers
from gradsync.statistics.intervals import median_interval

RANKS = 4
SIZES = tuple(2**exponent for exponent in range(16, 27))  # bytes
PAIRS = 24
TARGET = 0.9
HALVES_TARGET = 1.02
BLOCK_SECONDS, MOST_MESSAGES = 0.03, 32  # of a block; a sum grows by the number of ranks with each message
LANE = "network"
KINDS = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)  # of a ring


def measure(folder: Path, config: str) -> Row:
    """Rows of the executed ring and of the simulated BML, and whether all targets were met; ranks write to `folder`."""
    launch(["benchmark", "collectives", "--config", config, "--results", str(folder)], RANKS)
    return rows.result(json.loads((folder / "ring.json").read_text()) + collective_scaling.rows())


def on_a_rank(folder: Path) -> None:
    """What each of the ranks runs; rank 0 writes the rows."""
    with process_group() as (rank, ranks):
        of_ring = ring_against_native(rank, ranks)
        if rank == 0:
            write_whole(folder / "ring.json", json.dumps(of_ring))


def ring_against_native(rank: int, ranks: int, sizes: tuple[int, ...] = SIZES, pairs: int = PAIRS) -> list[Row]:
    """Two rows per size, each a ratio with its 95 % interval: busbw, ours over Gloo's; our halves over our whole ring.

    Collective over 2^k ranks.

    Raises RunError if a sum is wrong.
    """
    groups, everyone = Groups(), tuple(range(ranks))
    groups.add(LANE, everyone)
    groups.add("native", everyone)
    of_sizes = []
    for size in sizes:
        buffer = torch.empty(size // 4)
        ring = {kind: _ring(kind, rank, ranks, buffer, groups) for kind in KINDS}
        native = _native(buffer, groups, everyone)
        seconds, messages = _in_turn((ring[ALL_REDUCE], native), buffer, rank, ranks, pairs)
        interval = median_interval(seconds[1] / seconds[0])
        busbw = bus_factor(ALL_REDUCE, ranks) * size / np.median(seconds, axis=1)
        of_sizes.append(
            {
                "task": f"ring, {ranks} ranks, {size} B: busbw of ours / of Gloo's own",
                "bytes": size,
                **rows.ratio(interval),
                "pairs": pairs,
                "messages_a_block": messages,
                "busbw_bytes_per_second": float(busbw[0]),
                "native_busbw_bytes_per_second": float(busbw[1]),
                "conformance": "the sums of all timed messages are exact",
                "target_ratio": TARGET,
                "met": interval[1] >= TARGET and pairs >= 20,
            }
        )
        both = _one_after_the_other(ring[REDUCE_SCATTER], ring[ALL_GATHER])
        seconds, messages = _in_turn((both, ring[ALL_REDUCE]), buffer, rank, ranks, pairs)
        interval = median_interval(seconds[0] / seconds[1])
        of_sizes.append(
            {
                "task": f"ring, {ranks} ranks, {size} B: reduce-scatter and all-gather / all-reduce",
                "bytes": size,
                **rows.ratio(interval),
                "pairs": pairs,
                "messages_a_block": messages,
                "conformance": "the sums of all timed messages are exact",
                "target_ratio": HALVES_TARGET,
                "met": interval[1] <= HALVES_TARGET and pairs >= 20,
            }
        )
    groups.close()
    return of_sizes


def _ring(kind: Any, rank: int, ranks: int, buffer: torch.Tensor, groups: Groups) -> Callable[[], Any]:
    ref = (Ref("gradient", 0, len(buffer)),)
    how = {"kind": kind, "postcondition": POSTCONDITION[kind], "algorithm": "ring"}
    op = Collective(name=kind, lane=LANE, reads=ref, writes=ref, **how)
    return Transfers(op, rank, tuple(range(ranks)), buffer, groups, tag=KINDS.index(kind)).run


def _one_after_the_other(first: Callable[[], Any], second: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> None:
        first()
        second()

    return run


def _native(buffer: torch.Tensor, groups: Groups, everyone: tuple[int, ...]) -> Callable[[], Any]:
    group = groups.of("native", everyone)
    return lambda: dist.all_reduce(buffer, group=group)


def _in_turn(
    senders: tuple[Callable[[], Any], ...], buffer: torch.Tensor, rank: int, ranks: int, pairs: int
) -> tuple[np.ndarray, int]:
    """(seconds of a message of the slowest rank in each block, messages per block).  # (senders, pairs)"""
    draws = [
        torch.randint(-99, 100, buffer.shape, generator=torch.Generator().manual_seed(other)).float()
        for other in range(ranks)
    ]
    total, of_rank = torch.stack(draws).sum(0), draws[rank]
    del draws

    def block(send: Callable[[], Any], messages: int) -> float:
        buffer.copy_(of_rank)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(messages):
            send()
        seconds = (time.perf_counter() - start) / messages
        # every message after the first sums values that all ranks share: exact, since the factor is a power of two
        if not torch.equal(buffer, total * float(ranks) ** (messages - 1)):
            raise RunError(f"rank {rank}: benchmark: an all-reduce of {4 * len(buffer)} B gave a wrong sum")
        return seconds

    typical = torch.tensor([max(block(send, 2) for _ in range(2)) for send in senders])
    dist.all_reduce(typical, op=dist.ReduceOp.MAX)
    messages = int(np.clip(BLOCK_SECONDS / float(typical.max()), 1, MOST_MESSAGES))
    seconds = torch.zeros(len(senders), pairs, dtype=torch.float64)
    for pair in range(pairs):
        for sender in range(len(senders)) if pair % 2 == 0 else reversed(range(len(senders))):
            seconds[sender, pair] = block(senders[sender], messages)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.numpy(), messages
