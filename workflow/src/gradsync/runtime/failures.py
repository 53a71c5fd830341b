"""Explains failures of torch, and ends a rank that can't close what it has open."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

from gradsync.errors import RunError

LATE = re.compile(r"timed? ?out", re.IGNORECASE)


def explain(error: BaseException, rank: int) -> RunError | None:
    """The RunError that explains a failure of torch; None for an unknown failure."""
    if not isinstance(error, RuntimeError | dist.DistError):
        return None
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if isinstance(error, torch.OutOfMemoryError):
        return RunError(f"rank {rank}: the GPU's memory is full: {reason}: take a smaller batch, or fewer contenders")
    if LATE.search(str(error)):
        return RunError(
            f"rank {rank}: another rank is there and does nothing, or is slower than the limit: {reason}: look what it "
            "does (py-spy dump), and at what else runs there"
        )
    if isinstance(error, dist.DistBackendError) or any(word in str(error).lower() for word in ("gloo", "nccl")):
        return RunError(f"rank {rank}: another rank is gone: {reason}")
    if isinstance(error, torch.AcceleratorError):
        return RunError(f"rank {rank}: the GPU failed: {reason}")
    return None


def leave_at_once(status: int) -> Callable[[], None]:
    """End the process with `status` once its output is written, without closing what waits for other ranks.

    The driver takes away what the process has on its GPU. NCCL's own watchdog ends it too, when a message is late.
    """

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    atexit.register(end)
    return lambda: None
