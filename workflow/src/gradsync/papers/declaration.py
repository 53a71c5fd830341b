"""What a paper declares of its tables and figures: the function that computes a table, and the files that it reads.

The workflow makes its jobs of these declarations: tables of the same files are computed in one process, and so are the
figures drawn from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gradsync.configuration.settings import Settings
from gradsync.papers.table import Table, file


class Place(NamedTuple):
    """Whose files are meant: those of a paper in the results of a configuration."""

    paper: str
    settings: Settings
    results: Path

    def launches(self, *models: str) -> list[str]:
        """The measured launches that the paper shows; those of these models, where some are named."""
        return [launch.job for launch in self.settings.of(self.paper) if not models or launch.model in models]


Source = Callable[[Place], Iterable[Path]]


@dataclass(frozen=True)
class Made:
    """A table: the function that computes it, the files that it reads, and tables of the same paper that it reads."""

    compute: Callable[[Settings, Path], Table]
    sources: tuple[Source, ...] = ()
    tables: tuple[str, ...] = ()


def made(compute: Callable[[Settings, Path], Table], *sources: Source, tables: tuple[str, ...] = ()) -> Made:
    """The declaration of a table."""
    return Made(compute, sources, tables)


@dataclass(frozen=True)
class Drawn:
    """A figure: the tables of its paper that it is drawn from, and other files.

    `of`: launches; without any, the figure has nothing to show.
    """

    tables: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    of: Source | None = None


def drawn(*tables: str, sources: tuple[Source, ...] = (), of: Source | None = None) -> Drawn:
    """The declaration of a figure."""
    return Drawn(tables, sources, of)


@dataclass(frozen=True)
class Paper:
    """All tables and figures of a paper.

    `inputs` are the files that every table reads, `replayed` those that emulated launches are made from. Jobs of the
    paper in the quick configuration may take `quick_seconds` on two idle cores, one after the other.
    """

    tables: Mapping[str, Made]
    figures: Mapping[str, Drawn]
    inputs: tuple[Source, ...] = ()
    replayed: tuple[Source, ...] = ()
    quick_seconds: float = 60.0

    def leaves(self, table: str, place: Place) -> frozenset[str]:
        """Every file that a table comes from, through other tables too; these themselves are none."""
        declared = self.tables[table]
        own = {str(path) for source in (*self.inputs, *declared.sources) for path in source(place)}
        return frozenset(own.union(*(self.leaves(other, place) for other in declared.tables)))

    def shown(self, place: Place) -> list[str]:
        """The figures that a configuration has anything to show in."""
        return [name for name, figure in self.figures.items() if figure.of is None or [*figure.of(place)]]


@dataclass(frozen=True)
class Batch:
    """Tables, or figures, of a paper that one process makes, since they come from the same files."""

    paper: str
    names: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the rule: the first of them tells which."""
        return f"{self.paper}_{self.names[0]}"


def tables(paper: str, declared: Paper, place: Place) -> list[Batch]:
    """Every table of a paper, in batches; within each, a table comes after those that it is made from."""
    keys = {name: declared.leaves(name, place) for name in declared.tables}
    batches = []
    for names in _alike(keys):
        others = {other for name in names for other in declared.tables[name].tables} - {*names}
        read = sorted(set().union(*(keys[name] for name in names)))
        read += sorted(str(file(place.results, paper, other)) for other in others)
        batches.append(Batch(paper, tuple(_sorted(names, declared)), tuple(read)))
    return batches


def figures(paper: str, declared: Paper, place: Place) -> list[Batch]:
    """Every figure of a paper that has anything to show, in batches."""
    shown = {name: declared.figures[name] for name in declared.shown(place)}
    own = {name: {str(path) for source in each.sources for path in source(place)} for name, each in shown.items()}
    keys = {
        name: frozenset(own[name].union(*(declared.leaves(table, place) for table in each.tables)))
        for name, each in shown.items()
    }
    batches = []
    for names in _alike(keys):
        read = {str(file(place.results, paper, table)) for name in names for table in shown[name].tables}
        batches.append(Batch(paper, tuple(names), tuple(sorted(read.union(*(own[name] for name in names))))))
    return batches


def counted_models(declared: Paper, place: Place) -> set[str]:
    """Models whose operations are counted for a paper."""
    sources = [*declared.replayed, *(source for table in declared.tables.values() for source in table.sources)]
    paths = {Path(path) for source in sources for path in source(place)}
    return {path.parent.name for path in paths if path.parent.parent == place.results / "counted"}


def _alike(keys: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Names with equal keys together, in the order in which they are declared."""
    found: dict[frozenset[str], list[str]] = {}
    for name, key in keys.items():
        found.setdefault(key, []).append(name)
    return list(found.values())


def _sorted(names: list[str], declared: Paper) -> Iterator[str]:
    left = list(names)
    while left:
        name = next(each for each in left if not {*declared.tables[each].tables} & {*left})
        left.remove(name)
        yield name


# Files


def counted(*models: str) -> Source:
    """Workloads of models, from operations counted on their definitions."""
    return lambda place: [place.results / "counted" / model / "workload.json" for model in models]


def profile(*models: str) -> Source:
    """Workloads of models, profiled on one rank here."""
    return lambda place: [place.results / "profile" / model / "workload.json" for model in models]


def trained(*models: str) -> Source:
    """What the launches that the paper shows leave behind; those of these models, where some are named."""
    return lambda place: [place.results / "runs" / "train" / job / "schemes.json" for job in place.launches(*models)]


def emulated_runs(place: Place) -> Iterable[Path]:
    """What the emulated launches that the paper shows leave behind."""
    launches = place.settings.emulated_of(place.paper)
    return [place.results / "runs" / "emulated" / launch.job / "status.json" for launch in launches]


def interference(place: Place) -> Iterable[Path]:
    """How computation and communication slow each other down, of each launch that is profiled."""
    profiled = [launch.job for launch in place.settings.of(place.paper) if launch.profile_iterations]
    return [place.results / "profile" / job / "interference.json" for job in profiled]


def network(place: Place) -> Iterable[Path]:
    """All-reduce times here, by size and number of ranks."""
    return [place.results / "profile" / "network" / "allreduce.csv"]


def contention(place: Place) -> Iterable[Path]:
    """Times of several all-reduces at once here."""
    return [place.results / "profile" / "network" / "contention.json"]


def testbed(place: Place) -> Iterable[Path]:
    """The paper's testbed, as the configuration names it."""
    return [Path(place.settings.of_paper(place.paper).testbed)]


def kept(*paths: Path) -> Source:
    """Files of this repository."""
    return lambda _: paths
