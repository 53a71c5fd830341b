"""Hooks on a module that a copy of it does not have: averaged and saved models are of the model alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class Uncopied:
    """A hook that calls `call`; copied or pickled it is one that does nothing."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What it calls."""
        return self.call(*arguments, **keywords)

    def __reduce__(self) -> tuple[Any, ...]:
        # takes anything, returns None, and is read where there is no gradsync
        return getattr, (nullcontext(), "__exit__")
