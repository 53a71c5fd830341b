"""Fig. 6 to 8 on an emulated testbed, at the point that is drawn as a line: all-reduces as the layer log has them.

A link has the paper's 10 Gbit/s; a connection gets less of it, as much as the all-reduces in the authors' log of
training did (`flow_bits_per_second` in the file of the testbed).
"""

from __future__ import annotations

from pathlib import Path

from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.papers.emulation import StandIn
from gradsync.papers.mgwfbp import simulated_testbed
from gradsync.papers.mgwfbp.settings import paper_settings
from gradsync.papers.testbed import Testbed


def on_paper_links(settings: Settings) -> list[Emulation]:
    """The launches that the figures show: those on links as in the paper, which have no other share of a link."""
    return [launch for launch in settings.emulated_of("mgwfbp") if launch.flow_share is None]


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """The model as in the authors' log or as profiled on this machine, on links of which a connection gets a part."""
    workloads = dict(simulated_testbed.workloads(job.model, settings, results))
    prefix = simulated_testbed.CENTRES[1].removesuffix(simulated_testbed.IN_TRAINING) if "" not in workloads else ""
    workload = workloads[prefix]
    cost = simulated_testbed.in_training(job.ranks)
    file = Testbed(paper_settings(settings).testbed)
    return StandIn(
        workload,
        file.number("link_bits_per_second", "value"),
        file.number("flow_bits_per_second", "value"),
        f"{prefix}{simulated_testbed.IN_TRAINING}",
        cost.startup_seconds(min(layer.bytes for layer in workload.layers)),
    )
