"""Published numbers of a paper, as its tables take them: entries of `published` in the paper's own file."""

from __future__ import annotations

from typing import Any

from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files import reading


class Published:
    """The entries of one paper; errors name the file and the entry."""

    def __init__(self, paper: str, settings: Settings) -> None:
        """Read the file; raises InputError if it can't be read or has no such entries."""
        self.path = settings.of_paper(paper).published
        content = reading.yaml_of(self.path, "paper file")
        entries = content.get("published") if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and "id" in entry for entry in entries):
            raise InputError(f"paper file {self.path}: published: needs a list of entries, each with an id")
        self.entries: dict[str, dict[str, Any]] = {str(entry["id"]): entry for entry in entries}
        self._schemes: dict[str, str | None] = content.get("schemes") or {}

    def value(self, number: str) -> float:
        """The number with that id; raises InputError with file and id if there is none."""
        value = self.entries.get(number, {}).get("value")
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"paper file {self.path}: published: {number}: needs a value that is a number")
        return float(value)

    def scheme(self, entry: dict[str, Any], key: str = "scheme") -> str:
        """The scheme of an entry under our name, empty if it has none.

        Raises InputError with file and name for a scheme that the file gives no name of ours.
        """
        name = entry.get(key)
        if name is None:
            return ""
        ours = self._schemes.get(name)
        if ours is None:
            raise InputError(f"paper file {self.path}: schemes: {name}: needs our name, which an entry asks for")
        return ours
