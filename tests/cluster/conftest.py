"""A real local Slurm for a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_here import Slurm, left_behind, slurm_in

from gradsync.slurm import local
from gradsync.slurm.local_files import Shape


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four nodes of 4 CPUs, 4000 MB and 2 (stand-in) GPUs."""
    folder = tmp_path_factory.mktemp("s")
    local.start(folder, Shape(cpus=4, gpus=2, memory=4000))
    yield slurm_in(folder)
    local.stop(folder)
    assert not left_behind(folder)
