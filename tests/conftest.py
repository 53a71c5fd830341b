"""How tests run, and the results of real ranks: each launch is made once for all tests that read it."""

from __future__ import annotations

import functools
import sys
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


# Of three processes that test files in this order, none is left alone with a long one: those of units are short.
LONG_FOLDERS = ("conformance", "distributed", "workflow")
# Of Slurm, images, emulated networks and GPUs: deep, whether or not the machine has them.
DEEP_FOLDERS = ("cluster", "containers", "testbed", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="run the deep tests and no others: what takes long, or root")
    parser.addoption(
        "--list-skipped",
        metavar="FILE",
        help="add the tests that were skipped to a file, one a line: `pytest @FILE` runs them",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deep: takes long; `make test-deep` runs it, `make test` does not")
    # of tests that run three at a time, each process tells this one what it skipped
    if (file := config.getoption("--list-skipped")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ListsSkipped(Path(file)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with long files; leave out the deep tests, or the others. All that is named on the command line runs."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    tests = Path(__file__).parent
    sides: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        sides[folder in DEEP_FOLDERS or item.get_closest_marker("deep") is not None].append(item)
    chosen = bool(config.getoption("--deep"))
    items[:] = sorted(sides[chosen], key=lambda item: item.path.relative_to(tests).parts[0] not in LONG_FOLDERS)
    config.hook.pytest_deselected(items=sides[not chosen])


class ListsSkipped:
    """Adds each test that is skipped to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """In this process torch computes on one thread: what tests compute is small, and a second one mostly spins."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Any]]:
    """on_ranks(program, n): what a program of `rank_programs/` returned on each of n real ranks."""
    from real_ranks import run_on_ranks

    @functools.cache
    def launch(program: str, ranks: int) -> list[Any]:
        return run_on_ranks(program, ranks, tmp_path_factory.mktemp(f"{program}-{ranks}-"))

    return launch
