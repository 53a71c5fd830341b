"""What published results of earlier runs have of a table or a claim: shown beside the run at hand, never counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gradsync.claims import UNDECIDED, Verdict, cells
from gradsync.publication import Entry
from gradsync.publication.timed import rungs
from gradsync.site import claimed, written_tables
from gradsync.site.claimed import Value
from gradsync.site.written_tables import Part

Key = tuple[str, str, str]  # paper, claim, rung


class EarlierTable(NamedTuple):
    """A table of an entry; `missing`: its rungs that the run at hand has no rows of."""

    entry: Entry
    missing: tuple[str, ...]
    parts: list[Part]


class EarlierVerdict(NamedTuple):
    """A verdict of an entry, with its values."""

    entry: Entry
    value: Value


def tables(entries: Iterable[Entry], paper: str, name: str, file: Path) -> list[EarlierTable]:
    """What entries have of a table, whose file of the run at hand is `file`; it may be missing."""
    here = rungs(cells.read(file) or [])
    return [
        EarlierTable(
            entry, tuple(rung for rung in table.rungs if rung not in here), written_tables.parts(table.written)
        )
        for entry in entries
        for table in entry.tables
        if (table.paper, table.id) == (paper, name)
    ]


def verdicts(entries: Iterable[Entry], here: Sequence[Verdict]) -> Mapping[Key, list[EarlierVerdict]]:
    """Verdicts of entries by claim and rung, where the run at hand decides nothing on that rung."""
    decided = {(each.paper, each.claim, each.rung) for each in here if each.verdict != UNDECIDED}
    known: dict[Key, list[EarlierVerdict]] = {}
    for entry in entries:
        for each in entry.verdicts:
            key = (each.paper, each.claim, each.rung)
            if key not in decided:
                known.setdefault(key, []).append(EarlierVerdict(entry, claimed.value(each)))
    return known
