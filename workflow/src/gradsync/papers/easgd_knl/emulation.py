"""The stand-in of a network of Table 2 for Fig. 10: hosts on one switch, with the start-ups and rates of the middle.

A link has the network's rate, and a connection the share of it that the band assumes. A batch computes as long as in
the simulated rows.
"""

from __future__ import annotations

from pathlib import Path

from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.easgd_knl import networks
from gradsync.papers.easgd_knl.testbed import bench, counted, label
from gradsync.papers.emulation import StandIn
from gradsync.papers.testbed import Testbed
from gradsync.plan.workload import Workload

NETWORK = "10gbe"  # the one of the three that hosts of one machine come nearest to
COUNTED_RATE = 1e12  # operations per second of the counted workloads, one sample each


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """What the launch stands for; raises InputError for a model that Fig. 10 does not have."""
    if job.model not in networks.SENT:
        raise InputError(
            f"emulated launch {job.job}: Fig. 10 has no model {job.model!r}; it has: {', '.join(networks.SENT)}"
        )
    file = bench(settings)
    point = networks.band(file)[0]
    link = file.positive("networks", NETWORK, "link_bits_per_second")
    startup = networks.message(file, NETWORK, point).a
    return StandIn(
        computation(file, counted(job.model, results)),
        link,
        point.share * link,
        at(NETWORK, point),
        2 * (job.ranks - 1) * startup,  # of a ring
    )


def at(network: str, point: networks.BandPoint) -> str:
    """The full name of a point of the band on a network."""
    return f"{label(networks=network)}, {point}"


def computation(file: Testbed, operations: Workload) -> Workload:
    """A batch at the peak of a KNL, of which the paper publishes no time."""
    slower = (
        file.positive("cifar_batch", "value") * COUNTED_RATE / file.positive("knl", "operations_per_second", "value")
    )
    return operations.scaled(
        forward_seconds=slower * operations.forward_seconds,
        backward_seconds=slower * operations.backward_seconds,
        update_seconds=0.0,
        note="a batch at the peak of a KNL",
    )
