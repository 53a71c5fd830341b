"""How tests run, and the results of real ranks: each launch is made once for all tests that read it.

Also puts this folder on their path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# No test depends on how fast the machine is, be it the time of an example or that of drawing one. Examples are the same
# in every run: whether a checkout passes is no matter of luck. `pytest --hypothesis-profile=search` draws others, and
# tells how to see again what fails.
UNTIMED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("same", derandomize=True, **UNTIMED)
hypothesis.settings.register_profile("search", print_blob=True, **UNTIMED)
hypothesis.settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--list-skipped",
        metavar="FILE",
        help="write which tests were skipped into a file, one a line: `pytest @FILE` runs them",
    )


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--list-skipped"):
        Path(file).write_text("")
        config.pluginmanager.register(ListsSkipped(Path(file)))


class ListsSkipped:
    """Adds each test that is skipped to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Any]]:
    """on_ranks(program, n): what a function of `rank_programs.py` returned on each of n real ranks."""
    from real_ranks import run_on_ranks

    @functools.cache
    def launch(program: str, ranks: int) -> list[Any]:
        return run_on_ranks(program, ranks, tmp_path_factory.mktemp(f"{program}-{ranks}-"))

    return launch
