"""Tables as people read them: the Markdown that `papers/tables.py` has written, as cells again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gradsync.files import reading

Cells = tuple[str, ...]
RULE = re.compile(r"\|[:| -]+\|")  # between the head of a table and its rows


class Part(NamedTuple):
    """A table under its caption. One whose lines have different numbers of cells has only its `text`."""

    caption: str
    head: Cells
    rows: tuple[Cells, ...]
    text: str = ""


def parts(path: Path) -> list[Part]:
    """The parts of a written table, in order; raises InputError if the file can't be read."""
    found: list[Part] = []
    caption: list[str] = []
    for block in re.split(r"\n\s*\n", reading.text(path, "table").strip()):
        lines = block.splitlines()
        if len(lines) < 2 or not RULE.fullmatch(lines[1]):
            caption.append(block)
            continue
        head, _, *rows = (_cells(line) for line in lines)
        even = all(len(row) == len(head) for row in rows)
        found.append(Part("\n".join(caption), head if even else (), tuple(rows) if even else (), "" if even else block))
        caption = []
    return found or [Part("", (), (), "\n".join(caption))]


def _cells(line: str) -> Cells:
    return tuple("" if cell.strip() == "nan" else cell.strip() for cell in line.strip("|").split("|"))
