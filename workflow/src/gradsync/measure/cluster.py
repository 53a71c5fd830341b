"""One cluster profile: every part measured by the ranks of one world, and kept as soon as it is there.

Parts that an earlier run has kept, of the same nodes, ranks, threads, networks, sizes and versions, are not measured
again.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from gradsync.clusters import parts
from gradsync.clusters.nodes import Nodes
from gradsync.errors import InputError
from gradsync.measure import allreduce, cluster_links, cluster_nodes, layers
from gradsync.measure.cluster_progress import PASSES, START, Counted, Progress, count, speed
from gradsync.runtime import devices

WHAT = ("nodes", "links", "layers")
SMALLEST, LARGEST = 1024, 64 * 1024 * 1024  # bytes of messages if no model decides


class ModelRequest(NamedTuple):
    """A model to time: `size` pixels of a side (None: its own), `batch` samples per rank."""

    name: str
    size: int | None
    batch: int


@dataclass(frozen=True)
class Request:
    """What to measure: `only` of WHAT; `inside`: numbers of ranks on one node (None: powers of two).

    `smallest` and `largest` message in bytes; None: those of the models. `force`: measure again what is kept.
    """

    models: tuple[ModelRequest, ...]
    device: str = devices.CPU
    only: tuple[str, ...] = WHAT
    inside: tuple[int, ...] | None = None
    iterations: int = 10
    smallest: int | None = None
    largest: int | None = None
    force: bool = False


class _Task(NamedTuple):
    """A part: its file's name, its kind and title, its key, seconds that it takes (about), and how it is measured."""

    name: str
    kind: str
    title: str
    key: dict[str, Any]
    seconds: float
    measure: Callable[[], parts.Part | None]  # collective; the part on rank 0


def measure(request: Request, folder: Path) -> list[Path]:
    """Measure what is missing in `folder`; returns the files of all parts of this request, on rank 0. Collective."""
    device = devices.pick(request.device)
    rank = dist.get_rank()
    placement, nodes = cluster_nodes.nodes()
    tasks = _tasks(request, placement, nodes, device)
    missing = [[task.name for task in tasks if request.force or not _kept(task, folder)]] if rank == 0 else [[]]
    dist.broadcast_object_list(missing)
    todo = [task for task in tasks if task.name in missing[0]]
    progress = Progress({task.name: task.seconds for task in todo}, {task.name: task.kind for task in todo})
    if rank == 0 and len(todo) < len(tasks):
        print(f"cluster: {len(tasks) - len(todo)} part(s) of {len(tasks)} are there already: {folder}", file=sys.stderr)
    for task in todo:
        if rank == 0:
            progress.start(task.name, task.title)
        part = task.measure()
        if part is not None:
            parts.write(part.model_copy(update={"key": task.key}), _file(task, folder))
            progress.done(task.name)
    return [_file(task, folder) for task in tasks]


def message_range(counted: Sequence[Counted], smallest: int | None, largest: int | None) -> tuple[int, int]:
    """Bytes of the smallest and the largest message: from the smallest gradient to all of the largest model."""
    low = smallest or min((model.smallest for model in counted), default=SMALLEST)
    high = largest or max((model.total for model in counted), default=LARGEST)
    if low > high:
        raise InputError(f"--smallest {low}: more than --largest {high}")
    return low, high


def _tasks(request: Request, placement: cluster_nodes.Placement, nodes: Nodes, device: Any) -> list[_Task]:
    counted = [count(model.name, model.size, model.batch) for model in request.models]
    low, high = message_range(counted, request.smallest, request.largest)
    rate = speed(device.torch_device) if "layers" in request.only and counted else 1.0
    world = {
        "hosts": placement.hosts,
        "ranks_per_node": placement.ranks_per_node,
        "device": request.device,
        "torch": torch.__version__,
        "transport": [kind.transport for kind in nodes.kinds],
        "threads": torch.get_num_threads(),
    }
    tasks = []
    if "nodes" in request.only:
        tasks.append(_Task("nodes", "nodes", "nodes", world, 0.0, lambda: _nodes(placement, nodes)))
    if "links" in request.only:
        sizes = len(allreduce.sizes(low, high))
        seconds = cluster_links.expected_seconds(low, high, device) + START
        for layout in cluster_links.layouts(placement, request.inside):
            key = {**world, "teams": [list(team) for team in layout.teams], "bytes": [low, high]}
            ranks = f"{layout.nodes} node(s) x {layout.ranks_per_node}"
            title = f"all-reduce {layout.kind}, {ranks}, {sizes} sizes to {high} B"
            tasks.append(_Task(layout.name, "links", title, key, seconds, _link(layout, low, high, device)))
    if "layers" in request.only:
        for model, counts in zip(request.models, counted, strict=True):
            key = {**world, **model._asdict(), "iterations": request.iterations}
            iterations = request.iterations + layers.WARM_UP
            seconds = PASSES * counts.operations * model.batch * iterations / rate + START
            name = f"layers-{model.name}-{len(placement.ranks)}x{placement.ranks_per_node}"
            title = f"layers of {model.name}, batch {model.batch}, {request.iterations} iterations"
            tasks.append(_Task(name, "layers", title, key, seconds, _layers(model, request, placement, device)))
    return tasks


def _nodes(placement: cluster_nodes.Placement, nodes: Nodes) -> parts.Part | None:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    reasons = cluster_links.reasons(placement)
    part = parts.NodesPart(nodes=nodes, measured=now, reasons=reasons, notes=tuple(placement.notes))
    return part if dist.get_rank() == 0 else None


def _link(layout: cluster_links.Layout, low: int, high: int, device: Any) -> Callable[[], parts.Part | None]:
    def measured() -> parts.Part | None:
        times = cluster_links.measure(layout, low, high, device)
        return None if times is None else parts.LinkPart.model_validate({"kind": layout.kind, "allreduce": times})

    return measured


def _layers(
    model: ModelRequest, request: Request, placement: cluster_nodes.Placement, device: Any
) -> Callable[[], parts.Part | None]:
    def measured() -> parts.Part | None:
        workload = layers.measure(model.name, model.batch, request.iterations, size=model.size, device=device)
        nodes, ranks_per_node = len(placement.ranks), placement.ranks_per_node
        part = parts.LayersPart(nodes=nodes, ranks_per_node=ranks_per_node, workload=workload)
        return part if dist.get_rank() == 0 else None

    return measured


def _file(task: _Task, folder: Path) -> Path:
    return folder / f"{task.name}.json"


def _kept(task: _Task, folder: Path) -> bool:
    """Whether the part is there, measured with the same key; a file that can't be read counts as missing."""
    try:
        return parts.read(_file(task, folder)).key == task.key
    except InputError:
        return False
