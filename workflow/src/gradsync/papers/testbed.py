"""Files of the papers' testbeds (`config/papers/PAPER/testbed.yaml`): numbers, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading


class Testbed:
    """The content of one file; errors name the file and the key that it lacks."""

    def __init__(self, path: str) -> None:
        """Read the file; raises InputError if it can't be read."""
        self.path = path
        self.content = reading.yaml_of(path, "testbed")

    def number(self, *keys: str | int) -> float:
        """A number; raises InputError with file and key if there is none."""
        return float(self._value_at(keys, _is_number, "a number, not negative"))

    def positive(self, *keys: str | int) -> float:
        """A number above 0, which something is divided by; raises InputError as `number` does."""
        return float(self._value_at(keys, lambda value: _is_number(value) and value > 0, "a number above 0"))

    def length(self, *keys: str | int) -> int:
        """How many entries a list has; raises InputError with file and key if there is none."""
        return len(self._value_at(keys, lambda value: isinstance(value, list) and bool(value), "a list"))

    def numbers(self, *keys: str | int, least: int = 1) -> list[float]:
        """A list of at least so many numbers; raises InputError with file and key if there is none."""

        def fits(value: Any) -> bool:
            return isinstance(value, list) and len(value) >= least and all(map(_is_number, value))

        return list(self._value_at(keys, fits, f"a list of numbers, at least {least} and none negative"))

    def band(self, *keys: str | int) -> list[str]:
        """The names of the points of a band: its words, and its numbers as short as they go (0.01, 1.3e+07)."""

        def fits(value: Any) -> bool:
            return isinstance(value, list) and bool(value) and all(isinstance(x, str) or _is_number(x) for x in value)

        values = self._value_at(keys, fits, "a list of words and numbers, none of them negative")
        return [value if isinstance(value, str) else f"{value:g}" for value in values]

    def text(self, *keys: str | int) -> str:
        """Words; raises InputError with file and key if there are none."""
        return str(self._value_at(keys, lambda value: isinstance(value, str), "a text"))

    def _value_at(self, keys: tuple[str | int, ...], fits: Callable[[Any], bool], requirement: str) -> Any:
        value = self.content
        for key in keys:
            try:
                value = value[key]
            except (KeyError, TypeError, IndexError):
                value = None
        if not fits(value):
            raise InputError(f"testbed {self.path}: {'.'.join(map(str, keys))}: needs {requirement}")
        return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
