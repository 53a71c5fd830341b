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
    """Whose files are meant: those of one paper in the results of one configuration."""

    paper: str
    settings: Settings
    results: Path

    def launches(self, *models: str) -> list[str]:
        """The measured launches that the paper shows; if models are named, those of these models."""
        return [launch.job for launch in self.settings.of(self.paper) if not models or launch.model in models]


Source = Callable[[Place], Iterable[Path]]


@dataclass(frozen=True)
class TableDeclaration:
    """A table: the function that computes it, the files that it reads, and tables of the same paper that it reads."""

    compute: Callable[[Settings, Path], Table]
    sources: tuple[Source, ...] = ()
    tables: tuple[str, ...] = ()


def table(
    compute: Callable[[Settings, Path], Table], *sources: Source, tables: tuple[str, ...] = ()
) -> TableDeclaration:
    """The declaration of a table."""
    return TableDeclaration(compute, sources, tables)


@dataclass(frozen=True)
class FigureDeclaration:
    """A figure: the tables of its paper that it is drawn from, and other files.

    `of`: the launches that it shows; without any, the figure has nothing to show.
    """

    tables: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    of: Source | None = None


def figure(*tables: str, sources: tuple[Source, ...] = (), of: Source | None = None) -> FigureDeclaration:
    """The declaration of a figure."""
    return FigureDeclaration(tables, sources, of)


@dataclass(frozen=True)
class Paper:
    """All tables and figures of a paper.

    `printed` names what the paper prints under a number, in its order; `fig5` stands for `fig5a_tensors` too.
    `inputs` are the files that every table reads, `replayed` those that emulated launches are made from. In the quick
    configuration, the jobs of the paper may take `quick_seconds` on two idle cores, one after the other.
    """

    tables: Mapping[str, TableDeclaration]
    figures: Mapping[str, FigureDeclaration]
    printed: tuple[str, ...] = ()
    inputs: tuple[Source, ...] = ()
    replayed: tuple[Source, ...] = ()
    quick_seconds: float = 60.0

    def leaves(self, table: str, place: Place) -> frozenset[str]:
        """Every file that a table comes from, also through other tables; these tables themselves are not among them."""
        declaration = self.tables[table]
        direct_files = {str(path) for source in (*self.inputs, *declaration.sources) for path in source(place)}
        return frozenset(direct_files.union(*(self.leaves(other, place) for other in declaration.tables)))

    def shown(self, place: Place) -> list[str]:
        """The figures that a configuration has anything to show in."""
        return [
            name for name, declaration in self.figures.items() if declaration.of is None or [*declaration.of(place)]
        ]


@dataclass(frozen=True)
class Batch:
    """Tables, or figures, of a paper that one process makes, since they come from the same files."""

    paper: str
    names: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the rule is named after: the paper and the first of the tables or figures."""
        return f"{self.paper}_{self.names[0]}"


def table_batches(paper: str, declared: Paper, place: Place) -> list[Batch]:
    """Every table of a paper, in batches; within each, a table comes after those that it is made from."""
    keys = {name: declared.leaves(name, place) for name in declared.tables}
    batches = []
    for names in _grouped_by_files(keys):
        tables_read = {other for name in names for other in declared.tables[name].tables} - {*names}
        files = sorted(set().union(*(keys[name] for name in names)))
        files += sorted(str(file(place.results, paper, other)) for other in tables_read)
        batches.append(Batch(paper, tuple(_in_order_of_use(names, declared)), tuple(files)))
    return batches


def figure_batches(paper: str, declared: Paper, place: Place) -> list[Batch]:
    """Every figure of a paper that has anything to show, in batches."""
    shown = {name: declared.figures[name] for name in declared.shown(place)}
    direct_files = {
        name: {str(path) for source in declaration.sources for path in source(place)}
        for name, declaration in shown.items()
    }
    keys = {
        name: frozenset(direct_files[name].union(*(declared.leaves(table, place) for table in declaration.tables)))
        for name, declaration in shown.items()
    }
    batches = []
    for names in _grouped_by_files(keys):
        files = {str(file(place.results, paper, table)) for name in names for table in shown[name].tables}
        batches.append(Batch(paper, tuple(names), tuple(sorted(files.union(*(direct_files[name] for name in names))))))
    return batches


def counted_models(declared: Paper, place: Place) -> set[str]:
    """Models whose operations are counted for a paper."""
    sources = [*declared.replayed, *(source for table in declared.tables.values() for source in table.sources)]
    paths = {Path(path) for source in sources for path in source(place)}
    return {path.parent.name for path in paths if path.parent.parent == place.results / "counted"}


def _grouped_by_files(keys: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Groups of names that read the same files, in the order in which they are declared."""
    groups: dict[frozenset[str], list[str]] = {}
    for name, key in keys.items():
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _in_order_of_use(names: list[str], declared: Paper) -> Iterator[str]:
    remaining = list(names)
    while remaining:
        name = next(each for each in remaining if not {*declared.tables[each].tables} & {*remaining})
        remaining.remove(name)
        yield name


# Files


def counted(*models: str) -> Source:
    """Workloads of models, from operations counted on their definitions."""
    return lambda place: [place.results / "counted" / model / "workload.json" for model in models]


def profile(*models: str) -> Source:
    """Workloads of models, profiled on one rank of this machine or cluster."""
    return lambda place: [place.results / "profile" / model / "workload.json" for model in models]


def trained(*models: str) -> Source:
    """What the launches that the paper shows leave behind; if models are named, the launches of these models."""
    return lambda place: [place.results / "runs" / "train" / job / "schemes.json" for job in place.launches(*models)]


def stopped_at_accuracy(place: Place) -> Iterable[Path]:
    """What the launches that the paper shows leave behind, of those that stop at a test accuracy."""
    stopped = [launch.job for launch in place.settings.of(place.paper) if launch.target_accuracy is not None]
    return [place.results / "runs" / "train" / job / "schemes.json" for job in stopped]


def emulated_runs(place: Place) -> Iterable[Path]:
    """What the emulated launches that the paper shows leave behind."""
    launches = place.settings.emulated_of(place.paper)
    return [place.results / "runs" / "emulated" / launch.job / "status.json" for launch in launches]


def interference(place: Place) -> Iterable[Path]:
    """The interference of computation and messages in each launch that is profiled."""
    profiled = [launch.job for launch in place.settings.of(place.paper) if launch.profile_iterations]
    return [place.results / "profile" / job / "interference.json" for job in profiled]


def network(place: Place) -> Iterable[Path]:
    """All-reduce times of this machine or cluster, by size and number of ranks."""
    return [place.results / "profile" / "network" / "allreduce.csv"]


def contention(place: Place) -> Iterable[Path]:
    """Times of contending all-reduces on this machine or cluster."""
    return [place.results / "profile" / "network" / "contention.json"]


def selection(place: Place) -> Iterable[Path]:
    """Times of the compressors' selections on this machine or cluster."""
    return [place.results / "profile" / "selection" / "times.json"]


def loading(place: Place) -> Iterable[Path]:
    """The runs that wait for photographs, with the data cache and without."""
    return [place.results / "runs" / "loading" / place.settings.loading.job / "schemes.json"]


def testbed(place: Place) -> Iterable[Path]:
    """The paper's testbed, as the configuration names it."""
    return [Path(place.settings.of_paper(place.paper).testbed)]


def published(place: Place) -> Iterable[Path]:
    """The paper's published numbers, as the configuration names the file."""
    return [Path(place.settings.of_paper(place.paper).published)]


def kept(*paths: Path) -> Source:
    """Files of this repository."""
    return lambda _: paths
