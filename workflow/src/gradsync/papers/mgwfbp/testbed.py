"""The published testbed that a configuration names."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradsync.configuration.settings import Settings
from gradsync.engine.bounds import Links
from gradsync.papers.mgwfbp.settings import own
from gradsync.papers.testbed import Testbed

MODELS = ("googlenet", "resnet50")  # Section V
NODES = (2, 4, 8)  # Section V-B
DRAWN = ("wfbp", "single", "mgwfbp")  # the schemes of Fig. 6 to 8 whose throughput is known


class Throughput(NamedTuple):
    """What Fig. 6 to 8 are drawn from, images/s of all nodes together; `of[scheme][nodes]`, and `one_node` alone."""

    images_per_node: float
    one_node: float
    of: dict[str, dict[int, float]]

    @property
    def alone_seconds(self) -> float:
        """An iteration of one node, which sends nothing."""
        return self.images_per_node / self.one_node

    def iteration_seconds(self, scheme: str, nodes: int) -> float:
        """An iteration of so many nodes."""
        return nodes * self.images_per_node / self.of[scheme][nodes]


def cluster(settings: Settings) -> dict[str, Any]:
    """Its numbers; raises InputError with file and key where one that is needed is not there."""
    file = Testbed(own(settings).testbed)
    for key in ("alpha_seconds", "link_bits_per_second", "slope_hint_seconds_per_byte"):
        file.positive(key, "value")
    found: dict[str, Any] = file.content
    return found


def links(settings: Settings) -> Links:
    """The link of a node at its nominal rate; costs of the paper count no headers, and none are counted here."""
    return Links(cluster(settings)["link_bits_per_second"]["value"] / 8)


def startups(settings: Settings) -> dict[int, float]:
    """The published start-up a in seconds at each number of nodes; raises InputError where it is not there."""
    file = Testbed(own(settings).testbed)
    return {n: file.number("allreduce_startup_seconds", "value", n) for n in NODES}


def throughput(settings: Settings, model: str) -> Throughput:
    """What the paper's figures of a model are drawn from; raises InputError where it is not there."""
    file = Testbed(own(settings).testbed)

    def number(*keys: str | int) -> float:
        return file.number("drawn_throughput", model, *keys)

    return Throughput(
        number("images_per_node"),
        number("one_node"),
        {scheme: {n: number(scheme, n) for n in NODES} for scheme in DRAWN},
    )
