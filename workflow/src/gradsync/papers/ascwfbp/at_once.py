"""One and two all-reduces at once as they were timed on this machine, and on the testbeds of emulated launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradsync.configuration.settings import Settings
from gradsync.costs.contention_fit import Fit
from gradsync.costs.contention_points import Contention
from gradsync.costs.fitted import straight_line
from gradsync.papers.ascwfbp.runs_here import PAPER
from gradsync.papers.ascwfbp.testbed import Bench, bench
from gradsync.papers.emulated import runs
from gradsync.papers.repeats import REPEATS, jackknifed

HERE = "this machine"


class Measured(NamedTuple):
    """One and two all-reduces of each size, seconds of what a launch stands for.  # arrays: (sizes,)"""

    rung: str
    source: str
    nodes: float  # NaN: of other links than the paper's, which claims don't ask
    sizes: np.ndarray
    one: np.ndarray
    two: np.ndarray
    sweeps: np.ndarray  # (sweeps, lanes, sizes), of which `one` and `two` are means
    fit: Fit
    dilation: float
    link: float  # all-reduced bytes per second; NaN where there is no link
    note: str

    def jackknifed(self, numbers: Callable[[Measured], dict[str, float]]) -> dict[str, Any]:
        """Cells of what follows from the mean times: it is found again without each sweep in turn."""
        count = len(self.sweeps)
        means = [np.delete(self.sweeps, i, axis=0).mean(axis=0) for i in range(count if count > 1 else 0)]
        without = [numbers(self._replace(one=mean[0], two=mean[1])) for mean in means]
        return {REPEATS: count} | jackknifed(numbers(self), without)

    def within(self, testbed: Bench) -> np.ndarray:
        """Sizes in the range of Fig. 4(a)."""
        smallest, largest = testbed.fitted
        return (self.sizes >= smallest) & (self.sizes <= largest)

    def line(self, testbed: Bench) -> tuple[float, float, float]:
        """(a, b, R^2) by ordinary least squares in that range, as the paper has it."""
        at = self.within(testbed)
        return straight_line(self.sizes[at], self.one[at])

    def constant_gamma(self, testbed: Bench) -> float:
        """The one gamma of least relative squares for a + gamma b m."""
        a, b, _ = self.line(testbed)
        at = self.within(testbed)
        rest, slope = 1 - a / self.two[at], b * self.sizes[at] / self.two[at]
        return float((rest * slope).sum() / (slope * slope).sum())

    def by_capacity(self) -> np.ndarray:
        """T_2 by the capacity of the link."""
        modelled = {each.bytes: each.modelled for each in self.fit.residuals if each.lanes == 2}
        return np.array([modelled[int(size)] for size in self.sizes]) / self.dilation


def measured(settings: Settings, results: Path) -> Iterator[Measured]:
    """What was measured on this machine, and on the testbed of each emulated launch that has it."""
    file = results / "profile" / "network" / "contention.json"
    found = Contention.load(file)
    cores = found.provenance.get("cores", 0)
    shared = f"{found.ranks} ranks with two lanes each share {cores} cores" if 2 * found.ranks > cores else ""
    one = _timed(found, "measured", HERE, 1.0, float("nan"), shared)
    testbed = bench(settings)
    # as many ranks as the paper has GPUs stand for its nodes, for claims
    yield one._replace(nodes=testbed.nodes) if found.ranks == testbed.workers else one
    seen = set()
    for launch in settings.emulated_of(PAPER):
        file = results / "emulated" / launch.job / "contention.json"
        if (launch.ranks, launch.flow_share) in seen or not file.is_file():
            continue
        here, _ = runs(launch, results)
        if not here:
            continue
        seen.add((launch.ranks, launch.flow_share))
        rate = here[0].result.settings["testbed"]["bits_per_second"] * launch.dilation
        link = rate / 8 / (2 * (launch.ranks - 1) / launch.ranks)
        note = f"time {launch.dilation:g} times slower"
        found = Contention.load(file, launch.ranks)
        one = _timed(found, "emulated", f"testbed of {launch.job}", launch.dilation, link, note)
        yield one if launch.flow_share is None else one._replace(nodes=float("nan"))


def _timed(found: Contention, rung: str, source: str, dilation: float, link: float, note: str) -> Measured:
    fit, sweeps = found.fit(source), found.times() / dilation
    mean = sweeps.mean(axis=0)  # (lanes, sizes)
    notes = "; ".join(filter(None, (note, *fit.notes)))
    sizes = np.array(found.sizes, float)
    return Measured(rung, source, found.ranks, sizes, mean[0], mean[1], sweeps, fit, dilation, link, notes)
