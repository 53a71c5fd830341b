"""How many ranks a machine is taken to hold."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gradsync.errors import InputError
from gradsync.runtime import launch


def test_memory_that_files_fill_and_the_kernel_would_give_up_is_free(monkeypatch):
    """After the build of an image, nearly all memory is a cache of files."""
    memory = SimpleNamespace(free=0.6e9, available=20e9)
    monkeypatch.setattr(launch.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(launch, "cores", lambda: 2)
    launch.room_for(8, "--ranks")
    memory.available = 0.6e9
    with pytest.raises(InputError, match=r"2 ranks are more than this machine can hold \(2 cores, 0.6 GB free\)"):
        launch.room_for(2, "--ranks")
