"""Which timed rows of this paper's tables a configuration makes: of contending all-reduces, and of launches.

An emulated host stands for a node of the paper; as many ranks as the paper has GPUs stand for all its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradsync.configuration.settings import Settings
from gradsync.papers.ascwfbp.testbed import MODELS, SCHEMES, bench
from gradsync.papers.ascwfbp.timed_runs import PAPER
from gradsync.papers.coverage import Row, cores, has_interval, scheme_names

NEVER = {
    ("table5", "measured"): "S_max follows from the rate of the links, which nobody tells of where ranks are measured",
}
CONTENTION_TABLES = ("fig4a", "fig4b", "fig5")
LAUNCH_TABLES = ("table4", "fig6")
ASC = SCHEMES[-1]


class _Launch(NamedTuple):
    """`nodes`: how many of the paper it stands for; `cores`: how many it needs on one machine."""

    model: str
    nodes: int
    schemes: list[str]
    cores: int


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    launches = list({"emulated": _emulated, "measured": _measured}[rung](settings))
    if table in CONTENTION_TABLES:
        yield from _networks(rung, launches, settings)
    elif table in LAUNCH_TABLES:
        for launch in launches:
            for scheme in launch.schemes:
                yield Row({"model": launch.model, "nodes": launch.nodes, "scheme": scheme}, launch.cores)
    elif table == "table5":
        of_asc = {(launch.model, launch.nodes): launch.cores for launch in launches if ASC in launch.schemes}
        yield from (Row({"model": model, "nodes": nodes}, core_count) for (model, nodes), core_count in of_asc.items())
        for nodes in {nodes for _, nodes in of_asc}:
            if all((model, nodes) in of_asc for model in MODELS):
                yield Row({"model": "mean", "nodes": nodes})


def _networks(rung: str, launches: list[_Launch], settings: Settings) -> Iterator[Row]:
    testbed = bench(settings)
    if rung == "emulated":
        # contention is timed if a scheme has two lanes
        yield from (Row({"nodes": launch.nodes}) for launch in launches if ASC in launch.schemes)
    elif settings.contention.ranks == testbed.workers:
        yield Row({"nodes": testbed.nodes}, cores(testbed.workers, settings))


def _emulated(settings: Settings) -> Iterator[_Launch]:
    """The launches that tables show: those on the links of the paper."""
    for launch in settings.emulated_of(PAPER):
        if launch.flow_share is None and has_interval(launch):
            yield _Launch(launch.model, launch.ranks, launch.schemes, 0)


def _measured(settings: Settings) -> Iterator[_Launch]:
    testbed = bench(settings)
    for job in settings.of(PAPER):
        if job.ranks == testbed.workers and has_interval(job):
            yield _Launch(job.model, testbed.nodes, scheme_names(job, settings), cores(job.ranks, settings))
