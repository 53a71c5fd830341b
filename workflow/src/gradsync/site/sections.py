"""The page of a paper: its tables and figures in the order of print, each with all that belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gradsync import papers
from gradsync.claims.published import Paper, Published, Remark
from gradsync.papers import declaration
from gradsync.papers.declaration import Batch, Place
from gradsync.papers.table import file
from gradsync.publication import Entry
from gradsync.site import earlier, titles, written_tables
from gradsync.site.claimed import Claimed
from gradsync.site.earlier import EarlierTable
from gradsync.site.links import Link, Links
from gradsync.site.written_tables import Part


class Target(NamedTuple):
    """A table or a figure as a target of the workflow: `files` that are there, and what it is made from.

    `command` makes it again; none means that the configuration has nothing to show in it. `lacking`: files that it is
    made from and that are not there.
    """

    command: str
    files: list[Link]
    log: str
    jobs: tuple[str, ...]
    sources: list[Link]
    lacking: tuple[str, ...]

    @property
    def made(self) -> bool:
        """Whether it is there."""
        return bool(self.files)


class Section(NamedTuple):
    """A table, a figure, or both under one id; `drawn_from`: further tables that the figure is drawn from."""

    id: str
    title: str
    table: Target | None
    parts: list[Part]
    figure: Target | None
    picture: str
    drawn_from: tuple[str, ...]
    claims: list[Claimed]
    published: list[Published]
    errata: list[Remark]
    earlier: list[EarlierTable]


def sections(
    paper: Paper, claims: Sequence[Claimed], place: Place, config: str, entries: Sequence[Entry] = ()
) -> list[Section]:
    """The sections of a paper's page, with what `entries` have published of its tables.

    Raises InputError if a table that is there can't be read.
    """
    declared = papers.declared(place.paper)
    tables = {name: batch for batch in declaration.table_batches(place.paper, declared, place) for name in batch.names}
    figures = {
        name: batch for batch in declaration.figure_batches(place.paper, declared, place) for name in batch.names
    }
    links = Links(place.results)
    made = []
    for name in in_order(declared.tables, declared.figures, declared.printed):
        written = Path("tables") / place.paper / f"{name}.md"
        drawn = declared.figures[name].tables if name in declared.figures else ()
        of_table = [claim for claim in claims if claim.table == name]
        numbers = [entry for entry in paper.published if entry.table == name]
        made.append(
            Section(
                id=name,
                title=titles.title(name),
                table=_target("tables", name, tables[name], links, config) if name in tables else None,
                parts=written_tables.parts(place.results / written) if links.to(written) else [],
                figure=_figure(name, figures.get(name), links, config) if name in declared.figures else None,
                picture=links.to(f"figures/{place.paper}/{name}.svg"),
                drawn_from=tuple(table for table in drawn if table != name),
                claims=of_table,
                published=numbers,
                errata=_errata(paper, name, of_table, numbers),
                earlier=earlier.tables(entries, place.paper, name, file(place.results, place.paper, name)),
            )
        )
    return made


def in_order(tables: Iterable[str], figures: Iterable[str], printed: Sequence[str]) -> list[str]:
    """Both in the order in which the paper prints them; what it doesn't print follows, each table with its figure."""
    names = [*dict.fromkeys([*tables, *figures])]
    place = {name: number for number, name in enumerate(printed)}
    return sorted(names, key=lambda name: place.get(titles.printed(name), len(place)))


def _figure(name: str, batch: Batch | None, links: Links, config: str) -> Target:
    if batch is None:
        return Target("", [], "", (), [], ())
    return _target("figures", name, batch, links, config)


def _target(kind: str, name: str, batch: Batch, links: Links, config: str) -> Target:
    folder = f"{kind}/{batch.paper}/{name}"
    endings = ("csv", "md", "tex") if kind == "tables" else ("svg", "pdf", "png", "csv")
    first = "csv" if kind == "tables" else "svg"
    files = links.present(**{ending: f"{folder}.{ending}" for ending in endings})
    inputs = [Path(path) for path in batch.inputs]
    below = [path.relative_to(links.results) for path in inputs if path.is_relative_to(links.results)]
    runs = {path.parent.name: None for path in below if path.parts[0] == "runs" and (links.results / path).is_file()}
    shown = [Link(str(path), links.to(path)) for path in below if path.parts[0] not in ("runs", "tables")]
    return Target(
        command=f"snakemake --cores 2 {links.results / folder}.{first} --configfile {config}",
        files=files if links.to(f"{folder}.{first}") else [],
        log=links.to(f"logs/{kind.removesuffix('s')}/{batch.name}.log"),
        jobs=tuple(runs),
        sources=[link for link in shown if link.address],
        lacking=tuple(str(path) for path in below if not (links.results / path).is_file()),
    )


def _errata(paper: Paper, name: str, claims: Iterable[Claimed], numbers: Iterable[Published]) -> list[Remark]:
    """The remarks whose place names the table or figure, or which a claim or a published number on it refers to."""
    referring = " ".join(
        [*(note for claim in claims for note in claim.notes), *(entry.note or "" for entry in numbers)]
    )
    words = {*referring.replace(",", " ").replace(".", " ").replace(";", " ").replace(":", " ").split()}
    return [remark for remark in paper.remarks if remark.id in words or titles.names(remark.place, name)]
