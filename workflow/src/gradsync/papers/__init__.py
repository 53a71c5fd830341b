"""The papers' own experiments: what each table and figure needs, computed, and drawn. One package per paper.

A package has `PAPER` in `declaration`, `FIGURES` in `drawing` and, if a configuration can set more of it than its
files, `Own` in `settings`. Code that computes is imported only with a declaration: that takes longer than reading a
configuration.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync import names as names_of
from gradsync.errors import InputError
from gradsync.names import near

if TYPE_CHECKING:
    from gradsync.configuration.launches import Emulation
    from gradsync.configuration.settings import Settings
    from gradsync.papers.declaration import Paper
    from gradsync.papers.emulation import StandIn
    from gradsync.papers.table import Table

EMULATION = "emulation"  # the module that describes what a paper's emulated launches stand for


def refuse_unknown(paper: str) -> None:
    """Raises InputError for a paper that does not exist."""
    names_of.refuse_unknown("paper", paper, names_of.papers())


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """What an emulated launch stands for.

    Raises InputError if the paper has no emulated launches.
    """
    refuse_unknown(job.paper)
    package = f"{__name__}.{job.paper}"
    if importlib.util.find_spec(f"{package}.{EMULATION}") is None:
        raise InputError(f"paper {job.paper!r} has nothing that is emulated")
    original: StandIn = importlib.import_module(f"{package}.{EMULATION}").stand_in(job, settings, results)
    return original


def declared(paper: str) -> Paper:
    """The tables and figures of a paper; raises InputError that lists the known papers for any other name."""
    refuse_unknown(paper)
    declaration: Paper = importlib.import_module(f"{__name__}.{paper}.declaration").PAPER
    return declaration


def refuse_unknown_tables(paper: str, tables: Iterable[str]) -> None:
    """Raises InputError for a paper that does not exist, and for the first table that it does not have."""
    known = declared(paper).tables
    for table in tables:
        if table not in known:
            raise InputError(f"paper {paper!r} has no table {table!r}; {near(table, known)}it has: {', '.join(known)}")


def compute(paper: str, table: str, settings: Settings, results: Path) -> Table:
    """One table of one paper; raises InputError for a paper or table that does not exist."""
    refuse_unknown_tables(paper, [table])
    return declared(paper).tables[table].compute(settings, results)
