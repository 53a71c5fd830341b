"""The jobs that make tables and figures of a configuration, as its papers declare them."""

from __future__ import annotations

from pathlib import Path

from gradsync import papers
from gradsync.configuration.settings import Settings
from gradsync.papers import declaration
from gradsync.papers.declaration import Batch


def batches(chosen: Settings) -> dict[str, list[Batch]]:
    """By kind, `table` or `figure`: all that one job makes."""
    batches_of: dict[str, list[Batch]] = {"table": [], "figure": []}
    for paper in chosen.papers:
        declared, place = papers.declared(paper), declaration.Place(paper, chosen, Path("results") / chosen.name)
        batches_of["table"] += declaration.table_batches(paper, declared, place)
        batches_of["figure"] += declaration.figure_batches(paper, declared, place)
    return batches_of


def rules(chosen: Settings, *names: str) -> list[str]:
    """Rules that make tables and figures; of these names alone, if some are given."""
    chosen_batches = batches(chosen)
    return [
        f"{kind}_{batch.name}"
        for kind in chosen_batches
        for batch in chosen_batches[kind]
        if not names or {*batch.names} & {*names}
    ]
