"""DDP under PyTorch's profiler: each rank records a trace of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import recorded

RECORDED_STEPS = 7
BUCKET_MB = 0.02  # several buckets of different sizes


def recorded_beside_others(rank: int, ranks: int) -> dict[str, Any]:
    """The trace of this rank, as text, and the names of its parameters with their sizes."""
    torch.manual_seed(0)
    net = recorded.make()[0]
    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        recorded.train(DistributedDataParallel(net, bucket_cap_mb=BUCKET_MB), trace, steps=RECORDED_STEPS)
        return {"trace": trace.read_text(), "sizes": sizes}
