"""Prints what the jobs of each paper took when they last ran, one after the other, and holds it against the budgets.

Usage: python tests/job_times.py CONFIGURATION, in the folder of a run. It ends with 1 if a paper took more than OVER
times its budget, and PAUSE_SECONDS: the quick configuration stays quick with one paper more. Of a run with other work
beside it nothing is held against budgets.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gradsync import papers
from gradsync.configuration import settings
from gradsync.configuration.settings import Settings
from gradsync.statistics import quiet

RECORDS = Path(".snakemake/metadata")
SHARED = "all papers"  # network profiles, counted operations, claims, the import into MLflow
OVER = 3.0  # machines differ: some are twice as slow as that of the budgets
PAUSE_SECONDS = 60.0  # in which a machine may do nothing of this, once


def recorded(records: Path, name: str) -> Iterator[tuple[str, str, float]]:
    """(rule, log, seconds) of every job of a configuration that Snakemake has a record of."""
    jobs = {}
    for file in (each for each in records.rglob("*") if each.is_file()):
        record = json.loads(file.read_text())
        log = next(iter(record.get("log") or ()), "")
        if log.startswith(f"results/{name}/") and record.get("endtime"):
            jobs[record["rule"], log] = record["endtime"] - record["starttime"]  # its outputs have one log
    return ((rule, log, seconds) for (rule, log), seconds in sorted(jobs.items()))


def paper_of(rule: str, log: str, chosen: Settings) -> str:
    """Whose job it is: that of a table, a figure, a launch, or a profile that one paper needs."""
    words = {*Path(log).with_suffix("").parts}
    for launch in (*chosen.training, *chosen.elastic, *chosen.emulated):
        if launch.job in words:
            return launch.paper
    for paper, own in chosen.papers.items():
        if rule.startswith((f"table_{paper}_", f"figure_{paper}_")):
            return paper
        if rule == "profile_model" and words & {*own.needs_profiles}:
            return paper
    return SHARED


def busiest(results: Path) -> float:
    """The largest share of the cores that other work took while a launch was timed."""
    shares = [
        json.loads(file.read_text())["provenance"].get(quiet.KEY, 0.0)
        for file in results.glob("runs/*/*/*/result.json")
    ]
    return max(shares, default=0.0)


def main(configuration: str, records: Path = RECORDS, results: Path | None = None) -> int:
    """Print a line a paper; the exit status."""
    chosen = settings.load(configuration)
    seconds: dict[str, float] = defaultdict(float)
    slowest: dict[str, tuple[float, str]] = defaultdict(lambda: (0.0, ""))
    for rule, log, each in recorded(records, chosen.name):
        paper = paper_of(rule, log, chosen)
        seconds[paper] += each
        slowest[paper] = max(slowest[paper], (each, f"{rule} ({Path(log).stem})"))
    if not seconds:
        print(f"{records}: no job of {configuration} is recorded: run snakemake first", file=sys.stderr)
        return 2
    over = False
    for paper in (*chosen.papers, SHARED):
        budget = papers.declared(paper).quick_seconds if paper in chosen.papers else 0
        over |= bool(budget) and seconds[paper] > OVER * budget + PAUSE_SECONDS
        of = f" of {budget} s" if budget else ""
        print(f"{paper}: {seconds[paper]:.0f} s{of}; the longest {slowest[paper][1]}, {slowest[paper][0]:.0f} s")
    other = busiest(results or Path("results") / chosen.name)
    if over and other > quiet.QUIET:
        print(f"other work took up to {other:.0%} of the cores: run again on a quiet machine")
        return 0
    return int(over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
