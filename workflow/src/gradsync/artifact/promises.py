"""What a fresh run of the same commit, configuration and seed must give again, file by file.

It follows from what papers declare: a table that reads nothing that was timed must come out the same, and so must the
figures that are drawn from it alone. If a table reads runs and no profile, its simulated rows are computed from
published constants all the same, but for the predictions of its launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path, PurePath
from typing import Final, Literal

from gradsync import papers
from gradsync.claims import cells
from gradsync.configuration.settings import Settings
from gradsync.papers.declaration import Paper, Place
from gradsync.papers.table import file

Promise = Literal["identical", "within tolerance", "timing of runs", "timing", "source"]
IDENTICAL: Final = "identical"
TOLERANCE: Final = "within tolerance"
RUNS: Final = "timing of runs"
TIMING: Final = "timing"
SOURCE: Final = "source"  # a file of the checkout, or of its environment: no result
PROMISES = {
    IDENTICAL: "the same content: counts, formulas, published numbers",
    TOLERANCE: "the same numbers but for rounding on another processor: simulated on published constants",
    RUNS: "tables of runs: other times in timed rows and in predictions of launches, and all else within tolerance",
    TIMING: "times, or what was planned by them; training by the same plan ends with the same parameters",
}
RELATIVE = 1e-6  # tolerance: of a number
EXACT_RUNGS = {"published", "derived"}
PROFILE_FOLDER, RUNS_FOLDER = "profile", "runs"  # of what was timed


class Promises:
    """The promises of the results of one configuration."""

    def __init__(self, settings: Settings, results: Path) -> None:
        self.settings, self.results = settings, results

    def of(self, path: PurePath) -> Promise:
        """The promise of a file, by its path below the results."""
        match path.parts:
            case ("counted", *_):
                return IDENTICAL
            case ("tables", paper, name):
                return self._tables.get((paper, PurePath(name).stem), TIMING)
            case ("figures", paper, name):
                return self._figures.get((paper, PurePath(name).stem), TIMING)
        return TIMING

    @cached_property
    def _declared(self) -> Mapping[str, tuple[Paper, Place]]:
        places = {name: Place(name, self.settings, self.results) for name in self.settings.papers}
        return {name: (papers.declared(name), place) for name, place in places.items()}

    @cached_property
    def _tables(self) -> Mapping[tuple[str, str], Promise]:
        return {
            (paper, name): self._of_table(paper, name)
            for paper, (declared, _) in self._declared.items()
            for name in declared.tables
        }

    @cached_property
    def _figures(self) -> Mapping[tuple[str, str], Promise]:
        return {
            (paper, name): self._of_figure(paper, name)
            for paper, (declared, _) in self._declared.items()
            for name in declared.figures
        }

    def _of_figure(self, paper: str, name: str) -> Promise:
        declared, place = self._declared[paper]
        figure = declared.figures[name]
        promises = {self._tables[paper, table] for table in figure.tables}
        if {TIMING, RUNS} & promises or self._timed(path for source in figure.sources for path in source(place)):
            return TIMING
        # a drawing without a table computes its plans itself
        return IDENTICAL if promises == {IDENTICAL} else TOLERANCE

    def _of_table(self, paper: str, name: str) -> Promise:
        declared, place = self._declared[paper]
        if timed := self._timed(Path(path) for path in declared.leaves(name, place)):
            return RUNS if timed == {RUNS_FOLDER} else TIMING
        rungs = {row.get("rung", "simulated") for row in cells.read(file(self.results, paper, name)) or ()}
        return IDENTICAL if rungs <= EXACT_RUNGS else TOLERANCE

    def _timed(self, paths: Iterable[Path]) -> set[str]:
        """The folders of what was timed that these files lie in."""
        below = (path.relative_to(self.results) for path in paths if path.is_relative_to(self.results))
        return {PROFILE_FOLDER, RUNS_FOLDER} & {path.parts[0] for path in below}
