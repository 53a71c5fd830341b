"""What a paper's testbed is on an emulated one: the workload in the paper's seconds, and the rates of its links."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsync.configuration.launches import Emulation
from gradsync.plan.workload import Layer, Workload
from gradsync.testbed.description import Description


@dataclasses.dataclass(frozen=True)
class StandIn:
    """One launch as the paper had it, at one point of what it does not publish. Seconds and rates are the paper's."""

    workload: Workload
    bits_per_second: float
    flow_bits_per_second: float | None
    assumption: str
    startup_seconds: float | None = None  # of an all-reduce between so many hosts, if the paper's network has one

    def testbed(self, job: Emulation, lanes: int = 1) -> Description:
        """The emulated testbed: all links are slower by the dilation of the launch; each lane has its own connections.

        If the launch gives a connection a share of its link, a link has the rate that a connection had in the paper.
        """
        link, flow = self.bits_per_second, self.flow_bits_per_second
        if job.flow_share is not None:
            link = flow or link
            flow = None if job.flow_share == 1 else job.flow_share * link
        return Description(
            topology=job.topology,
            bits_per_second=link / job.dilation,
            flow_bits_per_second=None if flow is None else flow / job.dilation,
            lanes=lanes,
            dilation=job.dilation,
            source=self.assumption,
        )

    def replayed(self, job: Emulation) -> Workload:
        """The workload, with all computation slower by the dilation of the launch."""
        slower = job.dilation

        def dilated(layer: Layer) -> Layer:
            ahead = None if layer.forward_seconds is None else slower * layer.forward_seconds
            times = {"backward_seconds": slower * layer.backward_seconds, "forward_seconds": ahead}
            return layer.model_copy(update=times)

        changed: dict[str, Any] = {
            "name": job.model,
            "forward_seconds": slower * self.workload.forward_seconds,
            "update_seconds": 0.0,
            "norm_seconds": 0.0,
            "layers": tuple(map(dilated, self.workload.layers)),
            "statistics": 0,
            "provenance": {
                **self.workload.provenance,
                "assumed": self.assumption,
                "dilation": slower,
                "startup_seconds": self.startup_seconds,
            },
        }
        return self.workload.model_copy(update=changed)
