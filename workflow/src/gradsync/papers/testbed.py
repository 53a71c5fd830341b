"""Files of the papers' testbeds (`config/papers/PAPER/testbed.yaml`): numbers, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading


class Testbed:
    """What a file holds; keys that are asked for and not there are named with the file."""

    def __init__(self, path: str) -> None:
        """Read it; raises InputError where it can't be."""
        self.path = path
        self.content = reading.yaml_of(path, "testbed")

    def number(self, *keys: str | int) -> float:
        """A number; raises InputError with file and key where there is none."""
        return float(self._at(keys, _is_number, "a number, not negative"))

    def positive(self, *keys: str | int) -> float:
        """A number above 0, which something is divided by; raises InputError as `number` does."""
        return float(self._at(keys, lambda found: _is_number(found) and found > 0, "a number above 0"))

    def length(self, *keys: str | int) -> int:
        """How many entries a list has; raises InputError with file and key where there is none."""
        return len(self._at(keys, lambda found: isinstance(found, list) and bool(found), "a list"))

    def numbers(self, *keys: str | int, least: int = 1) -> list[float]:
        """A list of at least so many numbers; raises InputError with file and key where there is none."""

        def fits(found: Any) -> bool:
            return isinstance(found, list) and len(found) >= least and all(map(_is_number, found))

        return list(self._at(keys, fits, f"a list of numbers, at least {least} and none negative"))

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
            raise InputError(f"testbed {self.path}: {'.'.join(map(str, keys))}: needs {wanted}")
        return found


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool) and found >= 0
