"""Two turns of a model under schemes that overlap with backward alone, and under those that overlap with forward too.

One model on one network at one point of its band: messages that last about as long as computation, so that it shows
where they go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import alpha_beta
from gradsync.engine.simulate import simulate
from gradsync.papers.ascwfbp import testbed as ascwfbp
from gradsync.papers.dear.overlap import band
from gradsync.papers.testbed import Testbed
from gradsync.plan import Plan
from gradsync.plan.trace import Span

MODEL, NETWORK = "resnet152", "10gbe"
SCHEMES = ("wfbp", "mgwfbp", "optimal", "dear", "pipelined")
TURNS = 2


class Drawn(NamedTuple):
    """A scheme's plan, its spans on a rank, and the window of so many turns of its steady state, in seconds."""

    scheme: str
    plan: Plan
    spans: list[Span]
    window: tuple[float, float]


def traces(settings: Settings, results: Path) -> Iterator[Drawn]:
    """Of each scheme in turn, planned and simulated at the last point of the band: the least start-up, line rate."""
    file = Testbed(settings.of_paper("dear").testbed)
    workers = int(file.positive("workers", "value"))
    *_, point = band(file, NETWORK, workers)
    workload = ascwfbp.workload(MODEL, settings, results)
    known = schemes.load(settings.schemes)
    for name in SCHEMES:
        plan = schemes.plan(known[name], workload, point.cost, workers)
        network = alpha_beta.around(point.cost, workers)
        # further turns than are drawn: the first has no gathers before it, the last none after it
        trace = simulate(plan, workload, network, turns=TURNS + 4)
        starts = trace.turn_starts()
        yield Drawn(name, plan, trace.of(0), (starts[2], starts[2 + TURNS]))
