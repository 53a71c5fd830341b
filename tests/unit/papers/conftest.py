"""What tests of papers share: they run in the project; tables on made-up inputs are computed once for all of them."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import made_up_ascwfbp
import made_up_bml
import made_up_cloud
import made_up_easgd
import made_up_mgwfbp_runs
import made_up_mgwfbp_scaling
from gradsync.configuration.settings import Settings
from gradsync.drawing import style
from gradsync.papers.mgwfbp import simulated_testbed
from gradsync.papers.table import Table

ROOT = Path(__file__).parents[3]
Tables = tuple[Settings, Path]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def as_svg_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn in one format: what they show is the same in each (test_written_papers.py draws all)."""
    monkeypatch.setattr(style, "FORMATS", ("svg",))


@pytest.fixture(scope="session", autouse=True)
def simulated_once() -> Iterator[None]:
    """A row of Fig. 6 and 7 is simulated once for all tests that make these tables of the same inputs."""
    rows: dict[bytes, dict[str, Any]] = {}
    timed = simulated_testbed._timed

    def once(*arguments: Any) -> dict[str, Any]:
        key = pickle.dumps(arguments)
        if key not in rows:
            rows[key] = timed(*arguments)
        return dict(rows[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated_testbed, "_timed", once)
        yield


Once = Callable[[str, Callable[[Path], Tables]], Tables]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """once(name, make): what `make(folder)` returned to the first of the processes that test beside one another."""
    beside = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        beside = beside.parent

    def of(name: str, make: Callable[[Path], Tables]) -> Tables:
        kept = beside / f"{name}.pickle"
        with open(beside / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                (folder := beside / name).mkdir()
                kept.write_bytes(pickle.dumps(make(folder)))
        tables: Tables = pickle.loads(kept.read_bytes())
        return tables

    return of


@pytest.fixture(scope="session")
def asc_tables(once: Once) -> Tables:
    return once("asc", lambda folder: made_up_ascwfbp.every_table(folder / "results"))


@pytest.fixture(scope="session")
def bml_tables(once: Once) -> Tables:
    return once("bml", made_up_bml.every_table)


@pytest.fixture(scope="session")
def cloud_tables(once: Once) -> Tables:
    return once("cloud", made_up_cloud.every_table)


@pytest.fixture(scope="session")
def easgd_tables(once: Once) -> Tables:
    return once("easgd", made_up_easgd.every_table)


@pytest.fixture(scope="session")
def easgd_launches(once: Once) -> Tables:
    return once("easgd_launches", lambda folder: made_up_easgd.every_table(folder, launches=True))


@pytest.fixture(scope="session")
def gap_and_fig9(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Table]]:
    """(results folder, tables)."""
    with pytest.MonkeyPatch.context() as patch, made_up_mgwfbp_scaling.logged(tmp_path_factory.mktemp("logged")):
        patch.chdir(ROOT)
        results = made_up_mgwfbp_scaling.write_inputs(tmp_path_factory.mktemp("results") / "tiny")
        return results, made_up_mgwfbp_scaling.make(results, "gap", "fig9a", "fig9b")


@pytest.fixture
def logs_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Made-up logs of the authors, for Fig. 5 to 8."""
    with made_up_mgwfbp_runs.logged(tmp_path_factory.mktemp("logged")):
        yield


@pytest.fixture(scope="module")
def logs_of_scaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Made-up logs of the authors, for Fig. 9 and the gap."""
    with made_up_mgwfbp_scaling.logged(tmp_path_factory.mktemp("logged")):
        yield
