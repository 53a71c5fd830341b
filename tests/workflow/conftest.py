"""Copies of the project for tests of the workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from project_copy import Project
from tiny_workflow import tiny_copy


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy that tests only read or give files of their own."""
    return tiny_copy(tmp_path_factory.mktemp("project"))


@pytest.fixture
def own_project(tmp_path: Path) -> Project:
    """A copy for one test."""
    return tiny_copy(tmp_path)
