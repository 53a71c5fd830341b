"""What papers declare of their tables and figures, and the jobs that the workflow makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from gradsync import names, papers
from gradsync.claims.published import load
from gradsync.configuration import settings
from gradsync.papers import declaration, figures
from gradsync.papers.declaration import Paper, Place, figure, kept, table, trained
from gradsync.papers.table import Table

ROOT = Path(__file__).parents[3]
CONFIGURATIONS = sorted(path.stem for path in (ROOT / "config").glob("*.yaml") if "training:" in path.read_text())


def none(*_: object) -> Table:
    return Table(pd.DataFrame(), pd.DataFrame(), "")


@pytest.mark.parametrize("paper", names.papers())
def test_every_figure_of_a_paper_can_be_drawn_and_every_claim_has_its_table(paper):
    declared = papers.declared(paper)
    assert set(declared.figures) == set(figures.of(paper))
    assert {table for figure in declared.figures.values() for table in figure.tables} <= set(declared.tables)
    published = load(ROOT / "config" / "papers" / paper / "published.yaml")
    assert published.meta.key == paper
    assert {claim.table for claim in published.claims} <= set(declared.tables)


def test_what_papers_declare_is_known_without_torch():
    """The workflow reads all declarations whenever it starts."""
    declare = "import sys; from gradsync import names, papers; [papers.declared(each) for each in names.papers()]"
    ended = subprocess.run([sys.executable, "-c", f"{declare}; sys.exit('torch' in sys.modules)"], cwd=ROOT)
    assert ended.returncode == 0


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_every_table_and_figure_is_made_once_after_all_that_it_reads(configuration):
    config = settings.load(ROOT / "config" / f"{configuration}.yaml")
    for paper in config.papers:
        declared, place = papers.declared(paper), Place(paper, config, Path("results"))
        batches = declaration.table_batches(paper, declared, place)
        figures = declaration.figure_batches(paper, declared, place)
        assert sorted(name for batch in batches for name in batch.names) == sorted(declared.tables)
        assert sorted(name for batch in figures for name in batch.names) == sorted(declared.shown(place))
        batch_of = {name: batch for batch in batches for name in batch.names}
        written = {f"results/tables/{paper}/{name}.csv": name for name in declared.tables}
        for batch in batches:
            for number, name in enumerate(batch.names):
                for waited_for in declared.tables[name].tables:
                    assert (
                        waited_for in batch.names[:number] or f"results/tables/{paper}/{waited_for}.csv" in batch.inputs
                    )
            # what a batch waits for comes from fewer files: nothing waits in a circle
            for waited_for in {written[path] for path in batch.inputs if path in written}:
                assert declared.leaves(waited_for, place) < declared.leaves(batch.names[0], place)
                assert batch_of[waited_for] is not batch


def test_tables_of_the_same_files_are_made_together(tmp_path):
    one, other = kept(Path("one.csv")), kept(Path("other.csv"))
    declared = Paper(
        tables={
            "late": table(none, tables=("first",)),
            "first": table(none, one),
            "second": table(none, other, one),
            "third": table(none, one, tables=("second",)),
            "none": table(none),
        },
        figures={
            "both": figure("first", "second"),
            "example": figure(sources=(one,)),
            "fine": figure("late"),
            "empty": figure("late", of=trained()),
        },
    )
    place = Place("toy", settings.parse({"version": 1, "name": "tiny"}, "tiny"), Path("results"))
    assert [(batch.name, batch.names, batch.inputs) for batch in declaration.table_batches("toy", declared, place)] == [
        ("toy_first", ("first", "late"), ("one.csv",)),
        ("toy_second", ("second", "third"), ("one.csv", "other.csv")),
        ("toy_none", ("none",), ()),
    ]
    first, second = "results/tables/toy/first.csv", "results/tables/toy/second.csv"
    assert [(batch.names, batch.inputs) for batch in declaration.figure_batches("toy", declared, place)] == [
        (("both",), (first, second)),
        (("example", "fine"), ("one.csv", "results/tables/toy/late.csv")),
    ]
