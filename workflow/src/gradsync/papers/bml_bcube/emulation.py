"""Fig. 6 and 7 on an emulated testbed, at the point that is drawn as a bar."""

from __future__ import annotations

from pathlib import Path

from gradsync import topologies
from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.bml_bcube.testbed import bench
from gradsync.papers.emulation import StandIn
from gradsync.plan.workload import Workload


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """A server's computation from counted operations; raises InputError for a launch without a sub-minibatch."""
    if job.batch is None:
        raise InputError(f"emulated launch {job.job}: `batch` is missing: the sub-minibatch of a server")
    testbed = bench(settings, job.model)
    counted = Workload.load(results / "counted" / job.model / "workload.json")
    centre = testbed.centre()
    return StandIn(
        testbed.computation(centre, counted, job.batch),
        8 * testbed.bytes_per_second * centre.share_of_link,
        None,
        f"{centre.share_of_peak:g} of peak, {centre.share_of_link:g} of link",
        # a message has a round to the servers and one back; BML has both on each level
        2 * len(topologies.parse(job.topology, job.ranks).shape) * centre.alpha,
    )
