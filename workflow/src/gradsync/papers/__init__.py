"""The papers' own experiments: what each table and figure needs, computed. One package a paper, with `TABLES`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from pathlib import Path

from gradsync import names as names_of
from gradsync.errors import InputError
from gradsync.names import near
from gradsync.papers.emulation import MODULE, StandIn
from gradsync.papers.table import Table
from gradsync.settings import Emulation, Settings


def names() -> list[str]:
    """Every paper, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def refuse_unknown(paper: str) -> None:
    """Raises InputError for a paper that does not exist."""
    names_of.refuse_unknown("paper", paper, names())


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """What an emulated launch stands for.

    Raises InputError where its paper emulates nothing.
    """
    refuse_unknown(job.paper)
    package = f"{__name__}.{job.paper}"
    if importlib.util.find_spec(f"{package}.{MODULE}") is None:
        raise InputError(f"paper {job.paper!r} has nothing that is emulated")
    found: StandIn = importlib.import_module(f"{package}.{MODULE}").stand_in(job, settings, results)
    return found


def compute(paper: str, table: str, settings: Settings, results: Path) -> Table:
    """One table of one paper; raises InputError for a paper or table that does not exist."""
    refuse_unknown(paper)
    tables = importlib.import_module(f"{__name__}.{paper}").TABLES
    if table not in tables:
        raise InputError(f"paper {paper!r} has no table {table!r}; {near(table, tables)}it has: {', '.join(tables)}")
    made: Table = tables[table](settings, results)
    return made
