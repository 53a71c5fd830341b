"""Fig. 6 to 8 on an emulated testbed, at the point that is drawn as a line: all-reduces as the layer log has them.

A link has the paper's 10 Gbit/s; a connection gets less of it, as much as the all-reduces in the authors' log of
training did (`flow_bits_per_second` in the file of the testbed).
"""

from __future__ import annotations

from pathlib import Path

from gradsync.configuration.settings import Emulation, Settings
from gradsync.papers.emulation import StandIn
from gradsync.papers.mgwfbp import simulated_testbed
from gradsync.papers.mgwfbp.settings import own
from gradsync.papers.testbed import Testbed


def as_on_its_testbed(settings: Settings) -> list[Emulation]:
    """The launches that the figures show: not those of other shares of a link."""
    return [launch for launch in settings.emulated_of("mgwfbp") if launch.flow_share is None]


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """The model as the authors logged it or as it is profiled here, on links of which a connection gets a part."""
    found = dict(simulated_testbed.workloads(job.model, settings, results))
    prefix = simulated_testbed.CENTRES[1].removesuffix(simulated_testbed.IN_TRAINING) if "" not in found else ""
    workload = found[prefix]
    cost = simulated_testbed.in_training(job.ranks)
    file = Testbed(own(settings).testbed)
    return StandIn(
        workload,
        file.number("link_bits_per_second", "value"),
        file.number("flow_bits_per_second", "value"),
        f"{prefix}{simulated_testbed.IN_TRAINING}",
        cost.startup_seconds(min(layer.bytes for layer in workload.layers)),
    )
