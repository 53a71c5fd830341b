"""The testbed of the paper, and the band of what it leaves open: links, kernels of GPUs, what travels, what is hidden.

Every combination of what all models share is a point; what belongs to one model (`OWN`) varies one at a time, since no
row has two of them. Of the all-gathers between nodes those of the good network are recursive doubling, those of the
poor one rings.

Differs from the paper in what it does not publish, see testbed.yaml. A round of a collective takes the start-up of its
slowest transfer, a chunk of the tree's pipeline too. Selections travel with the messages beside backward, as on another
GPU; layers' shares of the computation are those at 224 pixels for each input size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from gradsync import topologies
from gradsync.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, MessageCost, Network
from gradsync.engine.bounds import Links
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.testbed import Testbed
from gradsync.plan import DTYPE_BYTES, Plan
from gradsync.plan.workload import Workload
from gradsync.rounds import flow_level
from gradsync.rounds.pipelined import Pipelined
from gradsync.topologies import Speeds, Topology

BITS = 8
MASK_BYTES = 1  # of an element, where a trial of MSTopK writes a mask
DTYPE = {2: "float16", 4: "float32"}
SINGLE, INSIDE, ON_TOP = "single", "inside", "on_top"
NETWORKS, INSIDES = ("good", "poor"), ("fast", "slow")
ALL_GATHERS = {"ring": "ring", "recursive_doubling": "halving_doubling"}  # whose second half it is here


class BandPoint(NamedTuple):
    """One point of the band. Rates are bits per second; `flow` is what one connection gets."""

    network: str
    flow: float
    inside: str
    wire: int  # bytes of a value
    density: float
    schedule: str
    update: str
    transformer_batch: int
    vgg19_lars: int  # place in the lists of vgg19_lars_seconds

    def __str__(self) -> str:
        return ", ".join(
            (
                *self.links,
                f"{BITS * self.wire}-bit values",
                f"density {self.density:g}",
                self.schedule,
                f"update {self.update}",
                f"Transformer batch {self.transformer_batch}",
                f"LARS of VGG-19 {'first' if self.vgg19_lars == 0 else 'second'}",
            )
        )

    @property
    def links(self) -> tuple[str, str, str]:
        """The parts of the label that are about links."""
        return f"network {self.network}", f"{self.flow / 1e9:g} Gbit/s a connection", f"inside {self.inside}"


OWN = ("transformer_batch", "vgg19_lars")


@dataclasses.dataclass(frozen=True)
class Bench:
    """The file of the testbed, and what follows from it."""

    file: Testbed

    @cached_property
    def topology(self) -> Topology:
        """Nodes of GPUs."""
        return topologies.parse(self.file.text("topology", "value"))

    @property
    def nodes(self) -> int:
        """m."""
        return self.topology.shape[1]

    @property
    def gpus(self) -> int:
        """Of a node, n."""
        return self.topology.shape[0]

    @property
    def workers(self) -> int:
        """P."""
        return self.topology.hosts

    @property
    def link(self) -> float:
        """Bytes per second of a node's link, nominal."""
        return self.file.positive("link_bits_per_second", "value") / BITS

    @property
    def nominal(self) -> Links:
        """What nothing is faster than."""
        return Links(self.link, ranks_per_node=self.gpus)

    @cached_property
    def points(self) -> list[BandPoint]:
        """The band; the first is the one that is drawn."""
        file = self.file
        shared = list(
            product(
                NETWORKS,
                _middle_first(file.numbers("flow_bits_per_second", "value")),
                INSIDES,
                map(int, file.numbers("wire_element_bytes", "value")),
                file.numbers("training_density", "value"),
                file.band("schedule", "value"),
                file.band("update", "value"),
            )
        )
        batches = [int(each) for each in _middle_first(file.numbers("transformer_batch", "value"))]
        several = range(file.length("vgg19_lars_seconds", "serial"))
        own = [*((batch, 0) for batch in batches), *((batches[0], place) for place in several[1:])]
        return [BandPoint(*each, *mine) for mine in own for each in shared]

    def without_own(self) -> list[BandPoint]:
        """The points at which no model has another value of its own than the first."""
        batch, lars = self.points[0].transformer_batch, self.points[0].vgg19_lars
        return [point for point in self.points if (point.transformer_batch, point.vgg19_lars) == (batch, lars)]

    def of_links(self) -> list[BandPoint]:
        """One point for each state of the links."""
        first = self.points[0]._asdict()
        kept = ("network", "flow", "inside")
        return [
            point
            for point in self.without_own()
            if all(value == first[key] for key, value in point._asdict().items() if key not in kept)
        ]

    # Links

    def speeds(self, point: BandPoint) -> Speeds:
        """Of the links inside nodes and between them; a route's start-up is that of a message on it."""
        inside, between = (
            self.file.number(key, end, "alpha_seconds")
            for key, end in (("inside", point.inside), ("network", point.network))
        )
        rate = self.link * self.file.positive("network", point.network, "share_of_link")
        return Speeds(
            bandwidth={"inside": self.file.positive("inside", point.inside, "bytes_per_second"), "between": rate},
            # a route has two links of GPUs, and two of nodes if it leaves a node
            latency={"inside": inside / 2, "between": max(0.0, between - inside) / 2},
        )

    def all_gather(self, point: BandPoint) -> str:
        """The collective whose second half is the All-Gather between nodes."""
        names = self.file.band("all_gather", "value")
        return ALL_GATHERS[names[0] if point.network == "poor" else names[1]]

    def all_reduce(self, collective: str, point: BandPoint) -> MessageCost:
        """The cost of a dense aggregation of all workers: `tree` is a pipeline, others are lines."""
        speeds, flows = self.speeds(point), {"between": point.flow / BITS}
        if collective == "tree":
            return Pipelined("tree", self.topology, speeds, self.file.positive("chunk_bytes", "value"), flows)
        return flow_level.cost(collective, self.topology, speeds, flows=flows).line

    @cached_property
    def _networks(self) -> dict[tuple[str, str, float, str], Network]:
        """Those that were asked for: a table asks for each many times."""
        return {}

    def network(self, collective: str, point: BandPoint) -> Network:
        """What every message of a plan with that collective costs.

        NaiveAG is a ring of all ranks. What HiTopKComm sends inside a node is a ring too; between nodes the streams of
        a node share its link.
        """
        key = (collective, point.network, point.flow, point.inside)
        if key not in self._networks:
            self._networks[key] = self._network(collective, point)
        return self._networks[key]

    def connection_matters(self, collective: str, point: BandPoint) -> bool:
        """Whether what one connection gets makes any difference to a collective there."""
        other = point._replace(flow=self.points[0].flow)
        return self.network(collective, point) != self.network(collective, other)

    def _network(self, collective: str, point: BandPoint) -> Network:
        speeds, flows = self.speeds(point), {"between": point.flow / BITS}
        if collective == "allgather_sparse":
            gather = flow_level.cost("ring", self.topology, speeds, kind=ALL_GATHER, flows=flows).line
            return Network({ALL_GATHER: gather, ALL_REDUCE: self.all_reduce("ring", point)})
        if collective == "hitopk":
            # what is too short to be cut into slices is summed as 2DTAR does it, which crosses the same links
            return Network({ALL_REDUCE: self.all_reduce("torus2d", point), **self._of_axes(speeds, point)})
        return Network({ALL_REDUCE: self.all_reduce(collective, point)})

    def _of_axes(self, speeds: Speeds, point: BandPoint) -> dict[str, Linear]:
        """Costs inside a node, and between nodes of each of its streams while all of them are under way."""
        inside, between = topologies.parse("switch", self.gpus), topologies.parse("switch", self.nodes)
        alpha = self.file.number("network", point.network, "alpha_seconds")
        share = min(_rate(speeds, "between") / self.gpus, point.flow / BITS)
        in_node = Speeds(self.file.number("inside", point.inside, "alpha_seconds"), _rate(speeds, "inside"))
        stream = Speeds(alpha, share)
        return {
            f"{kind}@{axis}": flow_level.cost(name, topology, each, kind=kind).line
            for kind, axis, name, topology, each in (
                (REDUCE_SCATTER, "local", "ring", inside, in_node),
                (ALL_GATHER, "local", "ring", inside, in_node),
                (ALL_GATHER, "node", self.all_gather(point), between, stream),
            )
        }

    # Kernels

    def memory_rate(self, point: BandPoint) -> float:
        """Bytes per second that kernels get of a GPU's memory."""
        share = self.file.positive("inside", point.inside, "share_of_memory_rate")
        return share * self.file.positive("gpu", "value", "memory_bytes_per_second")

    def mstopk_seconds(self, elements: float, width: int, messages: int, point: BandPoint) -> float:
        """Of so many elements in so many selections: N + 4 passes of each, with masks if the point is the slow one."""
        samplings = self.file.positive("samplings", "value")
        passes = samplings + 4
        moved = passes * elements * width
        if point.inside == INSIDES[1]:
            moved += samplings * elements * MASK_BYTES
        launches = passes * messages * self.file.number("inside", point.inside, "launch_seconds")
        return moved / self.memory_rate(point) + launches

    # Models

    @cached_property
    def plans(self) -> dict[Hashable, Plan]:
        """Plans that were made, by what they depend on."""
        return {}

    @cached_property
    def bounds(self) -> dict[Hashable, float]:
        """Hard bounds of plans, which `plans` keeps, on workloads."""
        return {}

    @cached_property
    def simulated(self) -> dict[Hashable, Any]:
        """Iterations that were simulated, by what they depend on."""
        return {}

    @cached_property
    def _workloads(self) -> dict[tuple[str, int, Path], Workload]:
        return {}

    def workload(self, model: str, width: int, results: Path) -> Workload:
        """Tensors of a model with values of so many bytes, scaled to the published sum; its shares as counted."""
        key = (model, width, results)
        if key not in self._workloads:
            self._workloads[key] = self._scaled(model, results).on_the_wire(DTYPE[width])
        return self._workloads[key]

    def _scaled(self, model: str, results: Path) -> Workload:
        """As counted, and scaled to the published sum if there is one."""
        counted = Workload.load(results / "counted" / model / "workload.json")
        published = self.file.content.get("parameters", {}).get("value", {})
        if model not in published:
            return counted
        factor = self.file.positive("parameters", "value", model) * DTYPE_BYTES["float32"] / counted.bytes
        layers = tuple(layer.resized(max(1, round(layer.parameters * factor))) for layer in counted.layers)
        return counted.model_copy(update={"layers": layers})


def bench(settings: Settings) -> Bench:
    """The testbed from its file; raises InputError with file and key if it lacks something."""
    return Bench(Testbed(settings.of_paper(PAPER).testbed))


def _middle_first(values: list[float]) -> list[float]:
    """The middle of a band before the others; the first of two."""
    middle = values[(len(values) - 1) // 2]
    return [middle, *(each for each in values if each != middle)]


def _rate(speeds: Speeds, kind: str) -> float:
    assert isinstance(speeds.bandwidth, dict)
    return float(speeds.bandwidth[kind])
