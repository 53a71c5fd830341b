"""The testbeds of the paper, and how a point of the band of what is not published is called."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.papers.testbed import Testbed
from gradsync.plan.workload import Workload

PAPER = "easgd_knl"
FLOAT32 = 4  # bytes
MEGA = 1e6
# the rows of Table 3
EASGD = {
    "original_easgd_no_overlap": "star",
    "original_easgd": "original",
    "sync_easgd1": "sync1",
    "sync_easgd2": "sync2",
    "sync_easgd3": "sync3",
}  # our name: the part of the ids of its published numbers
SCALED = {"googlenet": "googlenet", "vgg19": "vgg"}  # the models of Table 4, as EASGD


def bench(settings: Settings) -> Testbed:
    """The file of the testbeds; raises InputError if it can't be read."""
    return Testbed(settings.of_paper(PAPER).testbed)


def label(**parts: str) -> str:
    """The full name of a point: the key of each list, and the name or number in it."""
    return ", ".join(f"{key} {name}" for key, name in parts.items())


def points(file: Testbed, *keys: str) -> list[dict[str, str]]:
    """Every combination of the lists of these keys, by key; the first is the one that is drawn."""
    return [dict(zip(keys, each, strict=True)) for each in product(*(file.band(key, "value") for key in keys))]


def counted(model: str, results: Path) -> Workload:
    """The layers of a model, counted on its definition."""
    return Workload.load(results / "counted" / model / "workload.json")


def weighted_layers(workload: Workload) -> list[str]:
    """The layers that have weights, in backward order: the weight and the bias of one are two gradient tensors."""
    return list(dict.fromkeys(layer.name.rpartition(".")[0] for layer in workload.layers))
