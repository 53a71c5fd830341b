"""What a run of the workflow shows: a line for each job that starts, one for each that ends, and the time that is left.

Snakemake's own log file holds everything that Snakemake says.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

UNKNOWN = 0.15
"""The time that is left is shown if at most this share of the jobs ahead are of rules of which none has ended."""
MANY = ("table", "figure")  # rules of which there is one for each batch


class Screen:
    """Turns Snakemake's events into lines; knows how long jobs of each rule took in this run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self.clock = clock
        self.began: dict[Any, tuple[str, str, float]] = {}  # jobs that run: rule, name, since when
        self.waiting = Counter[str]()  # jobs of each rule that have not ended
        self.took: dict[str, list[float]] = {}  # seconds of those that have
        self.first = clock()
        self.total = 0

    def planned(self, stats: Mapping[str, Any]) -> str:
        """Take the jobs of the run: `stats` counts them by rule, and has their `total`; gives the line."""
        self.waiting = Counter[str]()
        for rule, count in stats.items():
            if rule != "total":
                self.waiting[_kind(rule)] += int(count)
        self.total = sum(self.waiting.values())
        self.first = self.clock()
        return f"{self.total} job{'s' if self.total != 1 else ''}"

    def started(self, job: Any, rule: str, name: str) -> str:
        """Take the start of a job of a rule; gives the line."""
        self.began[job] = (_kind(rule), name, self.clock())
        return name

    def ended(self, job: Any) -> str | None:
        """Take the end of a job; gives the line, None for a job whose start was not seen."""
        if job not in self.began:
            return None
        rule, name, since = self.began.pop(job)
        now = self.clock()
        self.took.setdefault(rule, []).append(now - since)
        self.waiting[rule] -= 1
        done = self.total - sum(self.waiting.values())
        left = self.left()
        more = f", about {duration(left)} left" if left is not None and done < self.total else ""
        return f"{name}: done in {duration(now - since)}; {done} of {self.total}{more}"

    def left(self) -> float | None:
        """Seconds until the run ends, if jobs of a rule take equally long and as many run at once as so far.

        It is not known (None) if too many of the jobs ahead are of rules of which none has ended; if they are few, they
        count as the mean of all jobs that have.
        """
        ended = [seconds for each in self.took.values() for seconds in each]
        elapsed = self.clock() - self.first
        ahead_of_unknown = sum(count for rule, count in self.waiting.items() if rule not in self.took)
        if not ended or elapsed <= 0 or ahead_of_unknown > UNKNOWN * sum(self.waiting.values()):
            return None
        mean = sum(ended) / len(ended)
        means = {rule: sum(each) / len(each) for rule, each in self.took.items()}
        ahead = sum(count * means.get(rule, mean) for rule, count in self.waiting.items())
        now = self.clock()
        under_way = sum(min(now - since, means.get(rule, mean)) for rule, _, since in self.began.values())
        at_once = max(1.0, (sum(ended) + sum(now - since for _, _, since in self.began.values())) / elapsed)
        return max(0.0, ahead - under_way) / at_once


def _kind(rule: str) -> str:
    """The kind of a rule: rules whose jobs are alike are one kind."""
    kind = rule.partition("_")[0]
    return kind if kind in MANY else rule


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
