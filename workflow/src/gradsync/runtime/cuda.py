"""NVIDIA GPUs: all that only CUDA has.

**Not run between GPUs yet**: one GPU was tried (an H200, torch 2.11). `pytest tests/cuda` on a machine with two of them
holds what stands on it to the oracle.

Float32 means float32 wherever gradsync trains or measures: TensorFloat-32, which cuDNN takes by default, is switched
off, else the oracle's tolerance of 1e-4 of the largest change would not hold. A loop of one's own keeps its settings.
A run on CUDA repeats bit for bit only with `torch.use_deterministic_algorithms(True)` and
`CUBLAS_WORKSPACE_CONFIG=:4096:8`, which whoever needs them can set: they are slower, and some layers (adaptive pooling,
say) have no deterministic gradient. A run on processors does.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gradsync.errors import InputError
from gradsync.runtime.devices import CUDA, Device

FLOAT16_CAPABILITY = (5, 3)  # CUDA C++ programming guide, table of arithmetic throughput


def compute_all_bits() -> None:
    """Switch TensorFloat-32 off for this process."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False  # once conv and rnn are set one by one, reading this one raises


class Gpu(Device):
    """An NVIDIA GPU, made the current one of this process; messages between GPUs are NCCL's.

    Collectives that are not asynchronous run on the current stream, as any kernel does (torch 2.8 and newer), so that a
    lane's stream orders its messages. Autograd calls hooks on a thread of its own with the stream of the forward pass.
    """

    kind, backend, queued = CUDA, "nccl", True

    def __init__(self, index: int):
        refuse_unbuilt(torch.cuda.get_device_capability(index), torch.cuda.get_arch_list())
        self.index = index
        self.torch_device = torch.device(CUDA, index)
        torch.cuda.set_device(index)

    def mark(self) -> torch.cuda.Event:
        """A CUDA event on the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds by the GPU's clock, to about half a microsecond."""
        return float(start.elapsed_time(end)) / 1e3

    def instants(self, marks: Sequence[Any]) -> list[float]:
        """Zero is the first mark; times are added step by step, since single precision is coarse over a long time."""
        at = [0.0] * min(1, len(marks))
        for before, after in pairwise(marks):
            at.append(at[-1] + self.seconds(before, after))
        return at

    def queue(self) -> torch.cuda.Stream:
        """A stream of torch's pool: it waits for the default stream only if it is made to."""
        return torch.cuda.Stream(self.torch_device)

    def on(self, queue: Any) -> AbstractContextManager[Any]:
        """Sets this thread's current stream, and sets it back."""
        torch.cuda.set_device(self.torch_device)  # a new thread has the first GPU, whose memory it shall not take
        return torch.cuda.stream(queue)

    def wait(self, mark: Any) -> None:
        """cudaStreamWaitEvent on the current stream."""
        torch.cuda.current_stream(self.torch_device).wait_event(mark)

    def synchronize(self) -> None:
        """Block until the GPU has nothing left to do."""
        torch.cuda.synchronize(self.torch_device)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy by way of pinned memory, which torch does not give to anybody else before the copy is done."""
        return tensor.pin_memory().to(self.torch_device, non_blocking=True)

    def peak_bytes(self) -> float | None:
        """The peak of tensors, without what torch's allocator and NCCL hold besides them."""
        return float(torch.cuda.max_memory_allocated(self.torch_device))

    def free_bytes(self) -> float:
        """Free bytes of the GPU's memory."""
        return float(torch.cuda.mem_get_info(self.torch_device)[0])

    def refuse_precision(self, precision: str) -> None:
        """bfloat16 needs an Ampere GPU or newer: elsewhere torch would emulate it."""
        name = torch.cuda.get_device_name(self.torch_device)
        if precision == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise InputError(f"--precision bfloat16: {name} has none: use float16 or float32")
        if precision == "float16" and torch.cuda.get_device_capability(self.torch_device) < FLOAT16_CAPABILITY:
            raise InputError(f"--precision float16: {name} has none: use float32")

    def identity(self) -> tuple[str, str]:
        """The host and the GPU's universally unique identifier, however many of the host's GPUs this process sees."""
        return socket.gethostname(), f"GPU {torch.cuda.get_device_properties(self.torch_device).uuid}"

    def provenance(self) -> dict[str, Any]:
        """Name of the GPU, and versions of what runs on it."""
        return {
            "backend": self.backend,
            "device": torch.cuda.get_device_name(self.torch_device),
            "capability": ".".join(map(str, torch.cuda.get_device_capability(self.torch_device))),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "cudnn": torch.backends.cudnn.version(),
            "driver": driver_version(),
        }


def refuse_absent() -> None:
    """Raises InputError if this program can't use a GPU, and says why."""
    if torch.version.cuda is None:
        raise InputError(
            f"--device cuda: this torch ({torch.__version__}) is built for processors only: install the one that "
            "envs/cuda.txt names, or use --device cpu"
        )
    if not dist.is_nccl_available():
        raise InputError(f"--device cuda: this torch ({torch.__version__}) is built without NCCL")
    if not torch.cuda.is_available():
        driver = driver_version()
        why = f"driver {driver} shows this process no GPU" if driver else "no NVIDIA driver is loaded"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        shown = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
        raise InputError(f"--device cuda: {why}{shown}: use a machine with one (in a container: --nv), or --device cpu")


def refuse_unbuilt(capability: tuple[int, int], built_for: Sequence[str]) -> None:
    """Raises InputError for a GPU of that compute capability if torch has no kernels for it (`sm_80`, `compute_90`)."""
    major, minor = capability
    for name in built_for:
        kind, _, digits = name.partition("_")
        of_major, of_minor = divmod(int(re.sub(r"\D", "", digits) or 0), 10)
        # machine code runs on later minor versions, PTX on all later ones
        if (of_major, of_minor) <= capability and (of_major == major or kind == "compute"):
            return
    raise InputError(
        f"--device cuda: this torch ({torch.__version__}) has no kernels for a GPU of compute capability "
        f"{major}.{minor}, only {', '.join(built_for)}: take a build that has them (envs/constraints-cuda.txt), or "
        "another GPU"
    )


def driver_version() -> str | None:
    """The version of the NVIDIA kernel module; None if it is not loaded."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    match = re.search(r"\b\d+\.\d+(\.\d+)?\b", first)
    return match.group() if match else None
