"""Addresses of results, as the pages of the site name them: relative, so that the folder of results can be moved."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

FOLDER = "site"  # of the pages, below the results


class Link(NamedTuple):
    """A file that is there, by the word that stands for it and its address."""

    label: str
    address: str


class Links:
    """The results of one configuration, seen from the pages of its site."""

    def __init__(self, results: Path) -> None:
        self.results = results

    def to(self, path: str | Path) -> str:
        """The address of a file below the results; empty if there is no such file."""
        return quote(f"../{Path(path).as_posix()}") if (self.results / path).is_file() else ""

    def present(self, **paths: str | Path) -> list[Link]:
        """Links to those of the files that are there, each labelled by its keyword."""
        return [Link(label, address) for label, path in paths.items() if (address := self.to(path))]
