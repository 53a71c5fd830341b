"""The two ways in which gradsync says no."""

from __future__ import annotations

from typing import Any


class InputError(Exception):
    """Bad input from outside: says what is wrong, where, and what to do. Exit status 2."""


class RunError(Exception):
    """A run or a check failed: says which rank, scheme or step. Exit status 1.

    `result` is what a subcommand has to show nevertheless; it is printed.
    """

    def __init__(self, message: str, result: dict[str, Any] | None = None):
        super().__init__(message)
        self.result = result
