"""The stand-in of the paper's testbed: 4 nodes of 2 GPUs, where a connection gets a share of its node's link.

A launch whose name is `elements` and a number of millions (`elements25m`) has one gradient of so many elements and no
computation. Others compute what the paper's GPU does: longer or shorter in the ratio by which the link of a node is
busy with a dense aggregation, which carries 2 (m - 1) / m of the gradients for m nodes.

Differs from the paper: values have 32 bits, and the Transformer is a quarter of the paper's, in tensors and in
computation, since one machine holds the copies of all ranks.
"""

from __future__ import annotations

import re
from pathlib import Path

from gradsync import topologies
from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.cloud_topk.cases import case
from gradsync.papers.cloud_topk.plans import alone, one_message
from gradsync.papers.cloud_topk.testbed import Bench, bench
from gradsync.papers.emulation import StandIn
from gradsync.plan.workload import Workload

CASES = {"resnet50": "resnet50_96", "transformer": "transformer"}  # model of a launch: that of Table 3
PART = {"transformer": 4}  # of which a launch has one
VECTOR = re.compile(r"elements([1-9][0-9]{0,3})m")
MILLION = 10**6


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """What the launch stands for, at the point that is drawn; raises InputError for a model that no table has."""
    testbed = bench(settings)
    point = testbed.points[0]
    width = int(testbed.file.positive("emulated", "element_bytes"))
    if elements := elements_of(job):
        workload = one_message(elements, width)
    elif job.model in CASES:
        workload = _computed(testbed, job, width, results)
    else:
        raise InputError(
            f"emulated launch {job.job}: the paper's stand-in has no model {job.model!r}; it has: {', '.join(CASES)}, "
            "and any model with a name like elements25m for a single gradient"
        )
    speeds = testbed.speeds(point)
    assert isinstance(speeds.bandwidth, dict)
    alpha = testbed.file.number("network", point.network, "alpha_seconds")
    return StandIn(workload, 8 * speeds.bandwidth["between"], None, str(point), 2 * (job.ranks - 1) * alpha)


def elements_of(job: Emulation) -> int:
    """Elements of the single gradient of a launch; 0 if it replays a model."""
    name = VECTOR.fullmatch(job.name)
    return MILLION * int(name[1]) if name else 0


def _computed(testbed: Bench, job: Emulation, width: int, results: Path) -> Workload:
    nodes = _nodes(job)
    busy = _busy(nodes) / _busy(testbed.nodes) / PART.get(job.model, 1)
    one = case(testbed, CASES[job.model], testbed.points[0], "table3")
    layers = _part(testbed.workload(one.counted, width, results), PART.get(job.model, 1))
    return alone(layers, busy * one.computation, 0.0, testbed.file.number("forward_share", "value"))


def _nodes(job: Emulation) -> int:
    topology = topologies.parse(job.topology, job.ranks)
    return -(-job.ranks // (topology.ranks_a_node or 1))


def _busy(nodes: int) -> float:
    """How often a node's link carries the gradients."""
    return 2 * (nodes - 1) / nodes


def _part(workload: Workload, part: int) -> Workload:
    layers = tuple(layer.resized(max(1, round(layer.parameters / part))) for layer in workload.layers)
    return workload.model_copy(update={"layers": layers})
