"""The papers' own experiments: what each table and figure needs, computed. One file a paper."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from gradsync.errors import InputError
from gradsync.papers.table import Table
from gradsync.settings import Settings


def compute(paper: str, table: str, settings: Settings, results: Path) -> Table:
    """One table of one paper; raises InputError for a paper or table that does not exist."""
    papers = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    if paper not in papers:
        raise InputError(f"paper {paper!r} does not exist; there are: {', '.join(papers)}")
    tables = importlib.import_module(f"{__name__}.{paper}").TABLES
    if table not in tables:
        raise InputError(f"paper {paper!r} has no table {table!r}; it has: {', '.join(tables)}")
    return tables[table](settings, results)
