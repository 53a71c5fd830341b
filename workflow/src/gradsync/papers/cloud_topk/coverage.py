"""Which timed rows of this paper's tables a configuration makes: none, since no code puts any there yet."""

from __future__ import annotations

from gradsync.configuration.settings import Settings
from gradsync.papers.coverage import Row

NEVER = {
    ("table5", "measured"): "no code puts such runs into this table yet",
    ("pto", "measured"): "no code times the ratios of LARS and LAMB by themselves, on ranks that deal them, yet",
}


def rows(table: str, rung: str, settings: Settings) -> tuple[Row, ...]:
    """No row."""
    return ()
