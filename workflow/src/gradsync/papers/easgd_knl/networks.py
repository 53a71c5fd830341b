"""Table 2: one packed message against one a layer on three networks, in the alpha-beta model of Section 5.2.

A message of m bytes takes alpha + beta m. The values of Table 2 are lost in the text at hand: start-ups and the share
of the link's rate are a band, of which the first of each list is the middle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.costs import Linear
from gradsync.papers.easgd_knl.testbed import bench, counted, label, weighted_layers
from gradsync.papers.labels import MODELS
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed

NETWORKS = {"fdr56": "Mellanox FDR, 56 Gbit/s", "qdr40": "Intel QDR, 40 Gbit/s", "10gbe": "Intel NE020, 10 Gbit/s"}
ENDS = ("first", "second", "third")  # of the start-ups of a network
SENT = ("lenet5", "alexnet")
BITS = 8


class BandPoint(NamedTuple):
    """A point of the band: which of a network's start-ups, and the share of the link's rate."""

    startup: int
    share: float

    def __str__(self) -> str:
        return label(alpha_seconds=ENDS[self.startup], share_of_link_rate=f"{self.share:g}")


def band(file: Testbed) -> list[BandPoint]:
    """The first of each list, and each other alone with the first of the other list."""
    middle, *others = file.numbers("networks", "share_of_link_rate")
    shares = [BandPoint(0, share) for share in others]
    return [*(BandPoint(startup, middle) for startup in range(len(ENDS))), *shares]


def message(file: Testbed, network: str, point: BandPoint) -> Linear:
    """What a message takes from one process to another."""
    startups = file.numbers("networks", network, "alpha_seconds", least=len(ENDS))
    rate = point.share * file.positive("networks", network, "link_bits_per_second") / BITS
    return Linear(startups[point.startup], 1 / rate, NETWORKS[network])


def table2(settings: Settings, results: Path) -> Table:
    """A row per network and model at each point of the band."""
    file = bench(settings)
    rows: list[dict[str, Any]] = []
    for network in NETWORKS:
        for model in SENT:
            workload = counted(model, results)
            layers = len(weighted_layers(workload))
            for point in band(file):
                cost = message(file, network, point)
                layered = layers * cost.a + cost.b * workload.bytes
                rows.append(
                    {
                        "rung": "derived",
                        "network": network,
                        "model": model,
                        "assumption": str(point),
                        "alpha_seconds": cost.a,
                        "beta_seconds_per_byte": cost.b,
                        "layers": layers,
                        "packed_seconds": float(cost.seconds(workload.bytes)),
                        "layered_seconds": layered,
                        "startup_share": layers * cost.a / layered,
                    }
                )
    frame = pd.DataFrame(rows)
    middle = frame[frame.assumption == str(band(file)[0])]
    over_band = frame.groupby(["network", "model"], sort=False).startup_share
    display = pd.DataFrame(
        {
            "network": middle.network.map(NETWORKS),
            "model": middle.model.map(MODELS),
            "alpha [us]": (1e6 * middle.alpha_seconds).map("{:g}".format),
            "beta [ns/B]": (1e9 * middle.beta_seconds_per_byte).map("{:.3f}".format),
            "one message [ms]": (1e3 * middle.packed_seconds).map("{:.3f}".format),
            "one a layer [ms]": (1e3 * middle.layered_seconds).map("{:.3f}".format),
            "start-ups of these, over the band": [
                f"{least:.2%} .. {most:.2%}" for least, most in zip(over_band.min(), over_band.max(), strict=True)
            ],
        }
    )
    caption = (
        "Table 2: all weights in one message, and in one a layer, by alpha + beta m. alpha and beta are assumed, since "
        "the values of the table are lost; times are those of the middle of the band."
    )
    return Table(frame, display, caption)
