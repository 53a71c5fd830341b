"""What README and the pages of docs/ tell a reader to type."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def lines(page: Path) -> list[str]:
    """Lines of the blocks of a page, without comments; one that a backslash continues is one line."""
    blocks = FENCED.findall(page.read_text().replace("\\\n", " "))
    kept = (line.partition("#")[0].strip() for block in blocks for line in block.splitlines()[1:-1])
    return [line for line in kept if line]


def spans(page: Path) -> list[str]:
    """What stands in the text of a page as code, each on one line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCED.sub("", page.read_text()))]


def called(program: str, texts: list[str]) -> list[str]:
    """The words after a program wherever it is called; `...` stands for words that a reader knows."""
    call = rf"(?:^|&& |[\w=./]+ |\()(?:[\w.]+/)*{re.escape(program)}( [^&|)]+|$)"
    calls = [match[1].strip(' "') for text in texts for match in re.finditer(call, text)]
    return [words for words in calls if "..." not in words]


def calls(program: str, page: Path) -> list[str]:
    """The words after a program wherever a page tells to run it, in a block or in the text."""
    return called(program, [*lines(page), *spans(page)])
