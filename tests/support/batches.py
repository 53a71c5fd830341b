"""The jobs that make tables and figures of a configuration, as its papers declare them."""

from __future__ import annotations

from pathlib import Path

from gradsync import papers
from gradsync.configuration.settings import Settings
from gradsync.papers import declaration
from gradsync.papers.declaration import Batch


def batches(chosen: Settings) -> dict[str, list[Batch]]:
    """By kind, `table` or `figure`: all that one job makes."""
    found: dict[str, list[Batch]] = {"table": [], "figure": []}
    for paper in chosen.papers:
        declared, place = papers.declared(paper), declaration.Place(paper, chosen, Path("results") / chosen.name)
        found["table"] += declaration.table_batches(paper, declared, place)
        found["figure"] += declaration.figure_batches(paper, declared, place)
    return found


def rules(chosen: Settings, *names: str) -> list[str]:
    """Rules that make tables and figures; of these names, where some are given."""
    made = batches(chosen)
    return [f"{kind}_{batch.name}" for kind in made for batch in made[kind] if not names or {*batch.names} & {*names}]
