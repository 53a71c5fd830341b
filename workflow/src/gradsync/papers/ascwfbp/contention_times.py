"""Times of one all-reduce alone and of two contending ones, on this machine and on testbeds of emulated launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradsync.configuration.settings import Settings
from gradsync.costs.contention_fit import Fit
from gradsync.costs.contention_points import Contention
from gradsync.costs.fitted import straight_line
from gradsync.papers.ascwfbp.testbed import Bench, bench
from gradsync.papers.ascwfbp.timed_runs import PAPER
from gradsync.papers.emulated import runs
from gradsync.papers.repeats import REPEATS, jackknifed
from gradsync.statistics.quiet import load_warnings

THIS_MACHINE = "this machine"


class ContentionTimes(NamedTuple):
    """Times of one all-reduce and of two contending ones, seconds of what a launch stands for.  # arrays: (sizes,)"""

    rung: str
    source: str
    nodes: float  # NaN: on other links than the paper's, which no claim looks up
    sizes: np.ndarray
    alone: np.ndarray  # of one all-reduce
    contending: np.ndarray  # of each of two
    sweeps: np.ndarray  # (sweeps, lanes, sizes); `alone` and `contending` are means over the sweeps
    fit: Fit
    dilation: float
    link: float  # all-reduced bytes per second; NaN if there is no link
    note: str

    def jackknifed(self, numbers: Callable[[ContentionTimes], dict[str, float]]) -> dict[str, Any]:
        """Cells of numbers that follow from the mean times: they are computed again without each sweep in turn."""
        count = len(self.sweeps)
        means = [np.delete(self.sweeps, i, axis=0).mean(axis=0) for i in range(count if count > 1 else 0)]
        without = [numbers(self._replace(alone=mean[0], contending=mean[1])) for mean in means]
        return {REPEATS: count} | jackknifed(numbers(self), without)

    def within(self, testbed: Bench) -> np.ndarray:
        """Whether each size is in the range of Fig. 4(a)."""
        smallest, largest = testbed.fitted
        return (self.sizes >= smallest) & (self.sizes <= largest)

    def line(self, testbed: Bench) -> tuple[float, float, float]:
        """(a, b, R^2) by ordinary least squares in the range of Fig. 4(a), as in the paper."""
        in_range = self.within(testbed)
        return straight_line(self.sizes[in_range], self.alone[in_range])

    def constant_gamma(self, testbed: Bench) -> float:
        """The one gamma of least relative squares for a + gamma b m."""
        a, b, _ = self.line(testbed)
        in_range = self.within(testbed)
        rest, slope = 1 - a / self.contending[in_range], b * self.sizes[in_range] / self.contending[in_range]
        return float((rest * slope).sum() / (slope * slope).sum())

    def by_capacity(self) -> np.ndarray:
        """T_2 by the capacity of the link."""
        modelled = {each.bytes: each.modelled for each in self.fit.residuals if each.lanes == 2}
        return np.array([modelled[int(size)] for size in self.sizes]) / self.dilation


def contention_times(settings: Settings, results: Path) -> Iterator[ContentionTimes]:
    """The times on this machine, and on the testbed of each emulated launch that measured them."""
    file = results / "profile" / "network" / "contention.json"
    measurement = Contention.load(file)
    cores = measurement.provenance.get("cores", 0)
    shared = (
        f"{measurement.ranks} ranks with two lanes each share {cores} cores" if 2 * measurement.ranks > cores else ""
    )
    times = _timed(measurement, "measured", THIS_MACHINE, 1.0, float("nan"), shared)
    testbed = bench(settings)
    # for claims, as many ranks as the paper has GPUs stand for its nodes
    yield times._replace(nodes=testbed.nodes) if measurement.ranks == testbed.workers else times
    shown = set()
    for launch in settings.emulated_of(PAPER):
        file = results / "emulated" / launch.job / "contention.json"
        if (launch.ranks, launch.flow_share) in shown or not file.is_file():
            continue
        contenders, _ = runs(launch, results)
        if not contenders:
            continue
        shown.add((launch.ranks, launch.flow_share))
        rate = contenders[0].result.settings["testbed"]["bits_per_second"] * launch.dilation
        link = rate / 8 / (2 * (launch.ranks - 1) / launch.ranks)
        note = f"time {launch.dilation:g} times slower"
        measurement = Contention.load(file, launch.ranks)
        times = _timed(measurement, "emulated", f"testbed of {launch.job}", launch.dilation, link, note)
        yield times if launch.flow_share is None else times._replace(nodes=float("nan"))


def _timed(measurement: Contention, rung: str, source: str, dilation: float, link: float, note: str) -> ContentionTimes:
    fit, sweeps = measurement.fit(source), measurement.times() / dilation
    means = sweeps.mean(axis=0)  # (lanes, sizes)
    notes = "; ".join(filter(None, (note, *fit.notes, *load_warnings(measurement.provenance, "contention"))))
    sizes = np.array(measurement.sizes, float)
    return ContentionTimes(
        rung, source, measurement.ranks, sizes, means[0], means[1], sweeps, fit, dilation, link, notes
    )
