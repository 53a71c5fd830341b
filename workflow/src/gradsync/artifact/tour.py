"""What can be made, table by table and figure by figure, and what can't: the lists of `docs/artifact.md`.

Both follow from what papers declare, so that they can't tell of what is no longer there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gradsync import papers
from gradsync.artifact.job_minutes import Records
from gradsync.claims import STRENGTH, published
from gradsync.claims.published import Paper
from gradsync.configuration import settings as configurations
from gradsync.configuration.launches import ElasticTraining, Emulation, Training
from gradsync.configuration.settings import Settings
from gradsync.papers import coverage
from gradsync.papers.declaration import Place
from gradsync.site import sections, titles

HUMAN_MINUTES = 1  # to type one command, and to look at what it makes
FEWEST_CORES = 2
SELECTION = ("selection", "times.json")
NEEDS_GPU, NEEDS_GPUS, NEEDS_ROOT = "a GPU", "GPUs", "Linux, root"


class Item(NamedTuple):
    """A table or figure: its target, the cores that its timed rows need, and configurations that time more of it."""

    paper: str
    id: str
    target: str
    cores: int
    longer: tuple[str, ...]

    @property
    def hardware(self) -> str:
        """In words."""
        return f"{self.cores} cores"


class Gap(NamedTuple):
    """What can't be reproduced, on which rung (empty: on none), and why."""

    paper: str
    what: str
    rung: str
    why: str


def items(settings: Settings, results: Path, folder: Path) -> Iterator[Item]:
    """Every table and figure of a configuration, paper by paper in the order of print; `folder`: of configurations."""
    others = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem not in ("schemes", "peers", settings.name):
            others[path.stem] = configurations.load(path)
    for paper in settings.papers:
        declared, place = papers.declared(paper), Place(paper, settings, results)
        shown = {*declared.shown(place)}
        for name in sections.in_order(declared.tables, declared.figures, declared.printed):
            if name not in shown and name not in declared.tables:
                continue
            kind, ending = ("figures", "svg") if name in shown else ("tables", "md")
            here = _launches(paper, name, place)
            cores = max((_ranks(settings).get(launch, 1) for launch in here), default=1)
            longer = tuple(
                _in_words(other, more)
                for other, more in others.items()
                if paper in more.papers
                and _adds(_launches(paper, name, Place(paper, more, results)), more, to=here, of=settings)
            )
            yield Item(paper, name, f"{results}/{kind}/{paper}/{name}.{ending}", max(FEWEST_CORES, cores), longer)


def gaps(settings: Settings) -> Iterator[Gap]:
    """What no configuration can give: rungs of tables, systems without a counterpart, and claims without a table."""
    for name, own in settings.papers.items():
        paper: Paper = published.of_paper(name, Path(own.published))
        declared = papers.declared(name)
        for table in declared.tables:
            for rung in STRENGTH:
                if why := coverage.never(name, table, rung):
                    yield Gap(name, titles.title(table), rung, why)
        for system, ours in paper.schemes.items():
            if ours is None:
                yield Gap(name, f"the system {system}", "", "no scheme here stands for it yet")
        missing: Mapping[str, None] = dict.fromkeys(
            claim.table for claim in paper.claims if claim.table not in declared.tables
        )
        for table in missing:
            yield Gap(name, titles.title(table), "", "no code makes this table yet, and the claims on it stay open")


def lists(settings: Settings, results: Path, folder: Path) -> str:
    """Both lists as Markdown; minutes are those of the last run here, and `-` if there was none."""
    records = Records()
    lines = [
        "| paper | what | target | hardware | you | machine | timed at greater length by |",
        "|---|---|---|---|---:|---:|---|",
    ]
    for item in items(settings, results, folder):
        minutes = records.minutes(f"{item.target.rpartition('.')[0]}.{'svg' if '/figures/' in item.target else 'csv'}")
        shown = "-" if minutes is None else f"{max(0.1, minutes):.1f}"
        longer = ", ".join(item.longer)
        lines.append(
            f"| {item.paper} | {titles.title(item.id)} | `{item.target}` | {item.hardware} | {HUMAN_MINUTES} | {shown} "
            f"| {longer} |"
        )
    lines += ["", "| paper | what | rung | why not |", "|---|---|---|---|"]
    lines += [f"| {gap.paper} | {gap.what} | {gap.rung} | {gap.why} |" for gap in gaps(settings)]
    return "\n".join(lines)


def _launches(paper: str, name: str, place: Place) -> set[tuple[str, str]]:
    """(kind, job) of the launches that a table or a figure comes from, and of the times of selections."""
    declared = papers.declared(paper)
    figure = declared.figures.get(name)
    tables = [*(figure.tables if figure else ()), *([name] if name in declared.tables else ())]
    leaves = {Path(path) for table in tables for path in declared.leaves(table, place)}
    leaves |= {path for source in (figure.sources if figure else ()) for path in source(place)}
    runs, selections = place.results / "runs", place.results.joinpath("profile", *SELECTION)
    parts = [path.relative_to(runs).parts for path in leaves if path.is_relative_to(runs)]
    return {(each[0], each[1]) for each in parts} | ({SELECTION} if selections in leaves else set())


def _adds(launches: Iterable[tuple[str, str]], more: Settings, to: Collection[tuple[str, str]], of: Settings) -> bool:
    """Whether one of the launches of a configuration is not there in another, or is told something else there.

    Of selections, whether another one times none from as many elements, or on the same device.
    """
    told, told_there = _told(more), _told(of)
    return any(
        (launch not in to or told.get(launch) != told_there.get(launch))
        if launch != SELECTION
        else not _selections(more) <= _selections(of)
        for launch in launches
    )


def _told(settings: Settings) -> dict[tuple[str, str], Training | ElasticTraining | Emulation]:
    """What a configuration tells each launch."""
    kinds = (("train", settings.training), ("elastic", settings.elastic), ("emulated", settings.emulated))
    return {(kind, launch.job): launch for kind, launches in kinds for launch in launches}


def _selections(settings: Settings) -> set[tuple[str, int]]:
    """The devices and the numbers of elements from which selections are timed."""
    return {(settings.device, elements) for elements in settings.selection.elements}


def _ranks(settings: Settings) -> dict[tuple[str, str], int]:
    """The ranks of each launch that compute at the same time; emulated ones only wait."""
    train = {("train", launch.job): launch.ranks for launch in settings.training}
    return train | {("elastic", launch.job): launch.workers for launch in settings.elastic if not launch.testbed}


def _in_words(name: str, settings: Settings) -> str:
    needs = {0: [], 1: [NEEDS_GPU]}.get(settings.gpus, [NEEDS_GPUS])
    needs += [NEEDS_ROOT] if settings.emulated or any(launch.testbed for launch in settings.elastic) else []
    return f"`{name}`" + (f" ({', '.join(needs)})" if needs else "")
