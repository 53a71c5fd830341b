"""Where a rank computes: on the processor, or on an NVIDIA GPU (`cuda.py`).

Work on a GPU is *queued*: a call returns before its work is done. The work of one queue (a CUDA stream) is done in
order; queues wait for one another at *marks* (CUDA events), which also tell when they were reached. On a processor a
call returns when its work is done: marks are times, and there is nothing to wait for. Code that is written with queues
and marks runs on both.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gradsync.errors import InputError

CPU, CUDA = "cpu", "cuda"
KINDS = (CPU, CUDA)


class Device:
    """The processor: work is done when a call returns. `index`: of a GPU among those that this process sees."""

    kind, backend, queued = CPU, "gloo", False
    index: int | None = None
    torch_device = torch.device(CPU)

    def mark(self) -> Any:
        """This point of the current queue: reached once everything before it there is done."""
        return time.perf_counter()

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks; on a GPU both must have been reached (`synchronize`)."""
        return float(end - start)

    def instants(self, marks: Sequence[Any]) -> list[float]:
        """Seconds of marks that have been reached, on a clock whose zero means nothing."""
        return list(marks)

    def queue(self) -> Any:
        """A new queue besides the one that work is put on otherwise."""
        return None

    def on(self, queue: Any) -> AbstractContextManager[Any]:
        """What this thread starts inside goes to `queue`; None: to the current one."""
        return nullcontext()

    def wait(self, mark: Any) -> None:
        """What is put on the current queue from now on waits for `mark`; this call does not."""

    def synchronize(self) -> None:
        """Wait for all queues."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor of the host to this device; the copy is queued like anything else."""
        return tensor

    def peak_bytes(self) -> float | None:
        """The most memory of its own that tensors took so far; None: it has none of its own."""
        return None

    def free_bytes(self) -> float | None:
        """Memory of its own that is free; None: it has none of its own."""
        return None

    def refuse_precision(self, precision: str) -> None:
        """Raises InputError if it can't compute in that type."""

    def identity(self) -> tuple[str, str]:
        """(host, unique name there)."""
        return socket.gethostname(), f"process {os.getpid()}"

    def provenance(self) -> dict[str, Any]:
        """What a result records of the device."""
        return {"backend": self.backend}


PROCESSOR = Device()


def pick(kind: str, *, as_set: bool = False) -> Device:
    """This rank's device: the only visible GPU, else that of LOCAL_RANK. Raises InputError if there is none.

    On a GPU, 32-bit numbers are computed with all of their bits from now on (no TensorFloat-32); with `as_set` as the
    process has set it.
    """
    if kind not in KINDS:
        raise InputError(f"device {kind!r} does not exist; there are: {', '.join(KINDS)}")
    if kind == CPU:
        return PROCESSOR
    gpu = _gpu()
    if not as_set:
        from gradsync.runtime import cuda

        cuda.compute_all_bits()
    return gpu


@functools.cache
def _gpu() -> Device:
    from gradsync.runtime import cuda

    cuda.refuse_absent()
    return cuda.Gpu(local_index(torch.cuda.device_count(), os.environ.get("LOCAL_RANK")))


def local_index(visible: int, local_rank: str | None) -> int:
    """Which of `visible` GPUs the rank with that LOCAL_RANK takes; raises InputError if it gets none."""
    if visible == 1:  # a launcher shows each rank its own, or there is one rank
        return 0
    if local_rank is None or not local_rank.isdigit():
        raise InputError(
            f"--device cuda: {visible} GPUs are visible and LOCAL_RANK is {local_rank or 'not set'}: the launcher must "
            "set it to the rank's number on its node, or show each rank one GPU"
        )
    if int(local_rank) >= visible:
        raise InputError(
            f"--device cuda: LOCAL_RANK {local_rank} needs {int(local_rank) + 1} GPUs on its node, {visible} are "
            "visible: start fewer ranks per node"
        )
    return int(local_rank)


def refuse(kind: str, ranks: int) -> None:
    """Raises InputError if this machine has too few GPUs for the `ranks` ranks that a launcher will start."""
    if kind == CPU:
        return
    from gradsync.runtime import cuda

    cuda.refuse_absent()
    visible = torch.cuda.device_count()
    if ranks > visible:
        raise InputError(f"--ranks {ranks}: one rank per GPU, and this machine shows {visible}: at most {visible}")
