"""The published testbed that a configuration names."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradsync.configuration.settings import Settings
from gradsync.engine.bounds import Links
from gradsync.papers.mgwfbp.settings import paper_settings
from gradsync.papers.testbed import Testbed

MODELS = ("googlenet", "resnet50")  # Section V
NODES = (2, 4, 8)  # Section V-B
DRAWN = ("wfbp", "single", "mgwfbp")  # the schemes of Fig. 6 to 8 whose throughput is known


class Throughput(NamedTuple):
    """What Fig. 6 to 8 are drawn from: images/s of all nodes together, `of[scheme][nodes]`, and of `one_node`."""

    images_per_node: float
    one_node: float
    of: dict[str, dict[int, float]]

    @property
    def alone_seconds(self) -> float:
        """Seconds of an iteration of one node, which sends nothing."""
        return self.images_per_node / self.one_node

    def iteration_seconds(self, scheme: str, nodes: int) -> float:
        """Seconds of an iteration of so many nodes."""
        return nodes * self.images_per_node / self.of[scheme][nodes]


def cluster(settings: Settings) -> dict[str, Any]:
    """The numbers of the testbed; raises InputError with file and key if one that is needed is not there."""
    file = Testbed(paper_settings(settings).testbed)
    for key in ("alpha_seconds", "link_bits_per_second", "slope_hint_seconds_per_byte"):
        file.positive(key, "value")
    content: dict[str, Any] = file.content
    return content


def links(settings: Settings) -> Links:
    """The link of a node at its nominal rate; headers are not counted, as in the costs of the paper."""
    return Links(cluster(settings)["link_bits_per_second"]["value"] / 8)


def startups(settings: Settings) -> dict[int, float]:
    """The published start-up a in seconds at each number of nodes; raises InputError if it is not there."""
    file = Testbed(paper_settings(settings).testbed)
    return {n: file.number("allreduce_startup_seconds", "value", n) for n in NODES}


def throughput(settings: Settings, model: str) -> Throughput:
    """What the paper's figures of a model are drawn from; raises InputError if it is not there."""
    file = Testbed(paper_settings(settings).testbed)

    def number(*keys: str | int) -> float:
        return file.number("drawn_throughput", model, *keys)

    return Throughput(
        number("images_per_node"),
        number("one_node"),
        {scheme: {n: number(scheme, n) for n in NODES} for scheme in DRAWN},
    )
