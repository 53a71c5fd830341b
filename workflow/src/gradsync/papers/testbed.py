"""Files of the papers' testbeds (`config/clusters/`): numbers, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradsync import reading
from gradsync.errors import InputError


class Testbed:
    """What a file holds; keys that are asked for and not there are named with the file."""

    def __init__(self, path: str) -> None:
        """Read it; raises InputError where it can't be."""
        self.path = path
        self.content = reading.yaml_of(path, "cluster")

    def number(self, *keys: str | int) -> float:
        """A number; raises InputError with file and key where there is none."""
        return float(self._at(keys, lambda found: isinstance(found, int | float), "a number"))

    def numbers(self, *keys: str | int) -> list[float]:
        """A list of numbers; raises InputError with file and key where there is none."""

        def fits(found: Any) -> bool:
            return isinstance(found, list) and bool(found) and all(isinstance(each, int | float) for each in found)

        return list(self._at(keys, fits, "a list of numbers"))

    def text(self, *keys: str | int) -> str:
        """Words; raises InputError with file and key where there are none."""
        return str(self._at(keys, lambda found: isinstance(found, str), "a text"))

    def _at(self, keys: tuple[str | int, ...], fits: Callable[[Any], bool], wanted: str) -> Any:
        found = self.content
        for key in keys:
            try:
                found = found[key]
            except (KeyError, TypeError, IndexError):
                found = None
        if not fits(found):
            raise InputError(f"cluster {self.path}: {'.'.join(map(str, keys))}: needs {wanted}")
        return found
