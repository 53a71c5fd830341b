"""What tests of papers share: they run in the project; tables on made-up inputs are computed once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import made_up_ascwfbp
import made_up_bml
import made_up_cloud
import made_up_easgd
import made_up_mgwfbp_runs
import made_up_mgwfbp_scaling
from gradsync.configuration.settings import Settings
from gradsync.papers.table import Table

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="session")
def asc_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    return made_up_ascwfbp.every_table(tmp_path_factory.mktemp("asc") / "results")


@pytest.fixture(scope="session")
def bml_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    return made_up_bml.every_table(tmp_path_factory.mktemp("bml"))


@pytest.fixture(scope="session")
def cloud_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    return made_up_cloud.every_table(tmp_path_factory.mktemp("cloud"))


@pytest.fixture(scope="session")
def easgd_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    return made_up_easgd.every_table(tmp_path_factory.mktemp("easgd"))


@pytest.fixture(scope="session")
def easgd_launches(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    return made_up_easgd.every_table(tmp_path_factory.mktemp("easgd"), launches=True)


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
