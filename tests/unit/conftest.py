"""What several unit tests start from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradsync import papers
from gradsync.papers.declaration import Place
from gradsync.papers.table import Table, file

ROOT = Path(__file__).parents[2]
opened: list[str] | None = None  # files that were opened for reading; None: nobody wants to know


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if opened is not None and event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb"):
        opened.append(arguments[0])


sys.addaudithook(_note)


@pytest.fixture(autouse=True, scope="session")
def tables_read_what_they_declare() -> Iterator[None]:
    """Each table that a test computes: a job of the workflow would not wait for, or see changes of, any other file."""
    compute = papers.compute

    def watched(paper: str, table: str, settings: Any, results: Path) -> Table:
        global opened
        opened, before = [], opened
        try:
            made = compute(paper, table, settings, results)
            refuse_undeclared(paper, table, settings, results, opened)
        finally:
            opened = before
        return made

    papers.compute = watched
    yield
    papers.compute = compute


def refuse_undeclared(paper: str, table: str, settings: Any, results: Path, read: list[str]) -> None:
    """Of the results and of the configuration's files.

    A launch is declared by the file that is written last: when it is there, so are its plans and what it replayed.
    """
    declared = papers.declared(paper)
    place = Place(paper, settings, results)
    own = {Path(path) for source in declared.tables[table].sources for path in source(place)}
    own |= {Path(path) for source in declared.inputs for path in source(place)}
    own |= {file(results, paper, other) for other in declared.tables[table].tables}
    known = {path.resolve() for path in (*own, Path(settings.schemes), Path(settings.peers))}
    launches = [path.parent for path in known if path.name in ("schemes.json", "status.json")]
    folders = [Path(*launch.parts[-2:]) for launch in launches]
    launches += [
        results.resolve() / "plans" / (launch.name if launch.parts[0] == "train" else launch) for launch in folders
    ]
    launches += [results.resolve() / launch for launch in folders]
    for path in sorted({Path(name).resolve() for name in read}):
        if path.is_relative_to(results.resolve()) or path.is_relative_to(ROOT / "config"):
            below = any(path.is_relative_to(launch) for launch in launches)
            assert path in known or below, f"table {table} of {paper} reads {path}, which it does not declare"


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
