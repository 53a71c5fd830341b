"""The testbed of Fig. 6 and 7, and an iteration on it at one point of the band of what is not published.

A tensor of BML, and of PS that splits it evenly, takes the a + b m of its rounds on the links, one tensor after the
other; whole tensors on servers, as TensorFlow places them (BM-E08), travel at the same time, so there every transfer is
simulated by itself.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from gradsync import topologies
from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.bounds import Links, cuts
from gradsync.papers.simulated import Simulated, timed
from gradsync.papers.testbed import Testbed
from gradsync.plan.workload import Workload
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds, Topology

BML, EVEN, TENSORS = "bml", "ps_p2p", "tf_ps"
COUNTED_RATE = 1e12  # operations per second of the counted workloads, one sample each
LAYER_BY_LAYER = Scheme(name="wfbp")  # Section 4.1: each layer is sent as soon as it is ready


class BandPoint(NamedTuple):
    """One point of the band."""

    share_of_peak: float
    share_of_link: float
    alpha: float  # seconds

    def __str__(self) -> str:
        return f"{self.share_of_peak:g} of peak, {self.share_of_link:g} of link, alpha={self.alpha:g} s"


class Bench(NamedTuple):
    """The testbed: two networks of so many servers, and what is not known of it."""

    servers: int
    cube: Topology
    switch: Topology
    operations_per_second: float  # of all GPUs of a server
    bytes_per_second: float  # of a link
    iterations: float
    batches: list[int]
    shares_of_peak: list[float]
    shares_of_link: list[float]
    alphas: list[float]

    def points(self) -> list[BandPoint]:
        """The points of the band."""
        return [BandPoint(*each) for each in product(self.shares_of_peak, self.shares_of_link, self.alphas)]

    def centre(self) -> BandPoint:
        """The point that is drawn as a bar."""
        bands = (self.shares_of_peak, self.shares_of_link, self.alphas)
        return BandPoint(*(sorted(band)[len(band) // 2] for band in bands))

    def computation(self, point: BandPoint, counted: Workload, batch: int) -> Workload:
        """What a server computes in an iteration."""
        slower = batch * COUNTED_RATE / (self.operations_per_second * point.share_of_peak)
        return counted.scaled(
            forward_seconds=slower * counted.forward_seconds,
            backward_seconds=slower * counted.backward_seconds,
            update_seconds=0.0,
            note=str(point),
        )

    def iterations_of(self, point: BandPoint, counted: Workload, batch: int) -> dict[str, Simulated]:
        """One iteration of each scheme."""
        workload = self.computation(point, counted, batch)
        speeds = Speeds(alpha=point.alpha, bandwidth=self.bytes_per_second * point.share_of_link)
        iterations = {}
        for name, topology in ((BML, self.cube), (EVEN, self.switch)):
            line = flow_level.cost(name, topology, speeds, self.servers).line
            iterations[name] = self._one_by_one(workload, line, topology)
        iterations[TENSORS] = self._every_transfer(workload, self.switch, speeds)
        return iterations

    def _nominal(self, topology: Topology) -> list[Links]:
        """The links of a server at their full rate, whatever share of it gradients are assumed to get."""
        return cuts(topology, Speeds(bandwidth=self.bytes_per_second), self.servers)

    def _one_by_one(self, workload: Workload, line: Linear, topology: Topology) -> Simulated:
        plan = schemes.plan(LAYER_BY_LAYER, workload, line, self.servers)
        return timed(plan, workload, alpha_beta.around(line, self.servers), *self._nominal(topology))

    def _every_transfer(self, workload: Workload, topology: Topology, speeds: Speeds) -> Simulated:
        line = flow_level.cost("ps_tensor", topology, speeds, self.servers).line
        # as many tensors travel as there are servers: more would change an iteration by less than 1 %
        lanes = {"lanes": self.servers}
        scheme = Scheme(name=TENSORS, schedule="wfbp", options=lanes, collective="ps_tensor", topology="switch")
        plan = schemes.plan(scheme, workload, line, self.servers)
        network = alpha_beta.around(line, self.servers)
        # the paper's times have no term for summing, for any of its systems
        how = {"topology": topology, "speeds": speeds, "add_seconds_per_byte": 0.0}
        return timed(plan, workload, network, *self._nominal(topology), **how)


def bench(settings: Settings, model: str) -> Bench:
    """The testbed of a model from its file; raises InputError with file and key if it lacks something."""
    file = Testbed(settings.of_paper("bml_bcube").testbed)
    servers = int(file.number("servers", "value"))
    return Bench(
        servers,
        topologies.parse(file.text("bcube", "value"), servers),
        topologies.parse(file.text("fat_tree", "value"), servers),
        file.number("gpus_per_server", "value") * file.number("gpu_operations_per_second", "value"),
        file.number("link_bits_per_second", "value") / 8,
        file.number("iterations", "value"),
        [int(batch) for batch in file.numbers("sub_minibatches", "value", model)],
        file.numbers("share_of_peak", model),
        file.numbers("share_of_link_rate", "value"),
        file.numbers("alpha_seconds", "value"),
    )
