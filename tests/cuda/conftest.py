"""The GPU of this process, alone in a group of ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from gradsync.runtime.devices import Device, pick


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    os.environ.setdefault("LOCAL_RANK", "0")
    yield pick("cuda")
    dist.destroy_process_group()
