"""Images for tests: a tiny one that is built in a moment, and those of the project if they were built."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tiny_project import ROOT, TinyProject


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    if shutil.which("apptainer") is None:
        pytest.skip("apptainer is not on PATH: install it with .ci/install-apptainer")
    return TinyProject(tmp_path)


def _built(name: str, variable: str) -> Path:
    image = Path(os.environ.get(variable) or ROOT / "containers" / f"{name}.sif")
    if not image.is_file():
        pytest.skip(f"{image} is not built: gradsync image {name} (or name one in {variable})")
    return image


@pytest.fixture(scope="session")
def base_image() -> Path:
    """The base image, if it was built."""
    return _built("base", "GRADSYNC_BASE_IMAGE")


@pytest.fixture(scope="session")
def cpu_image() -> Path:
    """The CPU image, if it was built."""
    return _built("cpu", "GRADSYNC_IMAGE")
