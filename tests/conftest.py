"""Which tests run in one process after another, and results of real ranks: each launch is made once for all tests that
read it. Also puts this folder on their path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Folders whose tests share what a machine has once (a testbed's networks, a Slurm, images), or launches: where tests
# run in several processes, those of a name run in one. Of all others, those of a file.
IN_TURN = {
    **{"testbed": "testbed", "cluster": "cluster"},
    **{"containers": "workflow", "workflow": "workflow"},
    **{"conformance": "ranks", "distributed": "ranks"},
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # not by marks of a group: pytest-xdist 3.8 loses them under pytest 9.2
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return IN_TURN.get(Path(file).parent.name, file)

    config.option.loadscopereorder = False  # most tests first would leave the longest, of networks, to the end
    return ByFolder(config, log)


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Any]]:
    """on_ranks(program, n): what a function of `rank_programs.py` returned on each of n real ranks."""
    from real_ranks import run_on_ranks

    @functools.cache
    def launch(program: str, ranks: int) -> list[Any]:
        return run_on_ranks(program, ranks, tmp_path_factory.mktemp(f"{program}-{ranks}-"))

    return launch
