"""Collectives, executed and timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tiny_plans as tiny
from gradsync import collectives
from gradsync.benchmarks import collectives_speed
from gradsync.errors import RunError
from gradsync.measure import allreduce
from gradsync.plan import Axis, Buffer, Collective, Plan, Ref, Role, piece
from gradsync.runtime import transfers
from gradsync.runtime.devices import PROCESSOR
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from queued_device import QueuedProcessor

CHUNK = 4000  # bytes: so that messages of a few thousand elements are cut
MESSAGES = (1, 7, 1000, 4099)  # elements; all but the last fit into a chunk
TYPES = (torch.float64, torch.float32)


def messages(algorithm: str, ranks: int, kind: str = collectives.ALL_REDUCE) -> Plan:
    """Messages one after another on a lane, and on another lane one that is larger than a chunk."""
    cut = ranks if kind == collectives.ALL_TO_ALL else 1
    sizes = [-(-size // cut) * cut for size in (*MESSAGES, 3 * CHUNK)]
    body: list[Any] = []
    start = 3
    for number, size in enumerate(sizes):
        ref = Ref("gradient", start, start + size)
        start += size
        body.append(
            Collective(
                name=f"message{number}",
                lane="first" if number < len(MESSAGES) else "second",
                kind=kind,
                postcondition=collectives.POSTCONDITION[kind],
                algorithm=algorithm,
                shape=tiny.levels(algorithm, ranks) if kind in collectives.kinds("ring", (ranks,)) else (),
                root=number % ranks,
                reads=(ref,),
                writes=(ref,),
            )
        )
    buffers = (Buffer("gradient", sum(sizes) + 5, "float64"),)
    return Plan("messages", ranks, (), buffers, (Role("worker", tuple(range(ranks)), tuple(body)),))


def all_collectives(rank: int, ranks: int) -> dict[tuple[str, str], Any]:
    """(collective, type) -> the largest error of any turn against the sum in float64, and the trace."""
    transfers.CHUNK_BYTES = CHUNK
    ended: dict[tuple[str, str], Any] = {}
    groups = Groups()
    for algorithm in collectives.names():
        for dtype in TYPES:
            plan = messages(algorithm, ranks)
            executor = Executor(plan, rank, groups, dtype=dtype)
            gradient, errors = executor.buffers["gradient"], []
            for turn in range(2):
                drawn = [np.random.default_rng((peer, turn)).normal(size=len(gradient)) for peer in range(ranks)]
                every = [torch.from_numpy(values).to(dtype).double() for values in drawn]
                total = torch.stack(every).sum(0)
                total[:3], total[-2:] = every[rank][:3], every[rank][-2:]  # of no message
                gradient.copy_(every[rank])
                executor.run(1)
                errors.append(float((gradient.double() - total).abs().max()))
            executor.run(2)  # without a pause: what is summed twice more
            total[3:-2] *= ranks**2
            errors.append(float((gradient.double() - total).abs().max()) / ranks**2)
            ended[algorithm, str(dtype).removeprefix("torch.")] = max(errors), executor.trace()
    groups.close()
    return ended


def both_halves(rank: int, ranks: int) -> dict[tuple[str, str], tuple[float, float]]:
    """(collective, type) -> largest error of this rank's piece after a reduce-scatter, of all after an all-gather."""
    transfers.CHUNK_BYTES = CHUNK
    errors: dict[tuple[str, str], tuple[float, float]] = {}
    groups = Groups()
    for algorithm in (name for name in collectives.names() if collectives.halves(name, (ranks,))):
        for dtype in TYPES:
            scatter, gather = (
                Executor(messages(algorithm, ranks, kind), rank, groups, dtype=dtype)
                for kind in (collectives.REDUCE_SCATTER, collectives.ALL_GATHER)
            )
            buffer = scatter.buffers["gradient"]
            every = [torch.from_numpy(np.random.default_rng(peer).normal(size=len(buffer))) for peer in range(ranks)]
            total = torch.stack(every).sum(0)
            buffer.copy_(every[rank])
            scatter.run(1)
            refs = [op.writes[0] for op in scatter.body]
            own = torch.cat([buffer[slice(*piece(*ref[1:3], rank, ranks))] for ref in refs]).double()
            expected = torch.cat([total[slice(*piece(*ref[1:3], rank, ranks))] for ref in refs])
            gather.buffers["gradient"].copy_(buffer)
            gather.run(1)
            whole = gather.buffers["gradient"].double()
            assert torch.equal(whole[:3], every[rank][:3].to(dtype).double())  # of no message
            errors[algorithm, str(dtype).removeprefix("torch.")] = (
                float((own - expected).abs().max()),
                float((whole - total)[3:-2].abs().max()),
            )
    groups.close()
    return errors


def other_kinds(rank: int, ranks: int) -> tuple[dict[tuple[str, str], float], list[dict[str, Any]]]:
    """(kind, collective) -> largest error of what this rank ends with; times of all kinds, also in queues."""
    transfers.CHUNK_BYTES = CHUNK
    errors: dict[tuple[str, str], float] = {}
    groups = Groups()
    for kind in (collectives.REDUCE, collectives.BROADCAST, collectives.ALL_TO_ALL):
        for algorithm in (collectives.NATIVE, *collectives.names(kind)):
            executor = Executor(messages(algorithm, ranks, kind), rank, groups)
            buffer = executor.buffers["gradient"]
            every = [np.random.default_rng(peer).normal(size=len(buffer)) for peer in range(ranks)]
            error = 0.0
            for _ in range(2):
                buffer.copy_(torch.from_numpy(every[rank]))
                executor.run(1)
                for op in executor.body:
                    start, stop = op.writes[0][1:3]
                    if kind == collectives.REDUCE and rank != op.root:
                        continue
                    parts = [values[start:stop] for values in every]
                    if kind == collectives.REDUCE:
                        wanted = np.sum(parts, axis=0)
                    elif kind == collectives.BROADCAST:
                        wanted = parts[op.root]
                    else:
                        wanted = np.concatenate([np.split(part, ranks)[rank] for part in parts])
                    error = max(error, float(np.abs(buffer[start:stop].numpy() - wanted).max()))
                for place in (slice(0, 3), slice(-2, None)):  # of no message
                    assert np.array_equal(buffer[place].numpy(), every[rank][place])
            errors[kind, algorithm] = error
    groups.close()
    allreduce.REPEATS, allreduce.SECONDS_PER_SIZE = 4, 0.001
    axes = (Axis("node", 1), Axis("local", ranks))
    devices = (PROCESSOR, QueuedProcessor())
    return errors, [allreduce.measure(400, 4000, each, (), None, collectives.KINDS, axes)["kinds"] for each in devices]


def ring_benchmark(rank: int, ranks: int) -> tuple[list[dict[str, Any]], str]:
    """Rows of a small benchmark, and what it says of a collective that sums nothing."""
    rows = collectives_speed.ring_against_native(rank, ranks, sizes=(64, 40_000), pairs=3)
    carry, transfers.Transfers.run = transfers.Transfers.run, lambda self: None
    try:
        collectives_speed.ring_against_native(rank, ranks, sizes=(64,), pairs=1)
    except RunError as error:
        return rows, str(error)
    finally:
        transfers.Transfers.run = carry
    return rows, ""


def cluster_teams(rank: int, ranks: int) -> Any:
    """All-reduces of the layouts of two nodes of two ranks; what each layout's own ranks summed is not looked at."""
    from gradsync.measure import cluster_links, cluster_nodes

    nodes = cluster_nodes.Placement([[0, 1], [2, 3]], ["a", "b"], [])
    layouts = cluster_links.layouts(nodes)
    return [(layout, cluster_links.measure(layout, 400, 40_000, PROCESSOR)) for layout in layouts]
