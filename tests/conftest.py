"""Results of real ranks: each launch is made once for all tests that read it. Also puts this folder on their path."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Any]]:
    """on_ranks(program, n): what a function of `rank_programs.py` returned on each of n real ranks."""
    from real_ranks import run_on_ranks

    @functools.cache
    def launch(program: str, ranks: int) -> list[Any]:
        return run_on_ranks(program, ranks, tmp_path_factory.mktemp(f"{program}-{ranks}-"))

    return launch
