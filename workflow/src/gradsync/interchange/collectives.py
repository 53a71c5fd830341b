"""Collectives in a profile of PyTorch: which events are one, of what kind, how large, between how many ranks."""

from __future__ import annotations

import re
from typing import Any

from gradsync.interchange.recording import Message
from gradsync.interchange.tensors import MOST_ELEMENTS, dtype_bytes, shape_bytes
from gradsync.limits import MOST_RANKS

# words of NCCL's kernels and of Gloo's notes, without underscores -> kinds as plans name them
KINDS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "reduce": "reduce",
}
SOURCES = ("kernel", "note")  # of times; what c10d and NCCL note on the host ends before the message does
_KERNEL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel", re.IGNORECASE)
_NOTE = re.compile(r"(?:gloo|mpi|ucc):(\w+)")


def is_kernel(name: str) -> bool:
    """Whether a kernel of that name is a collective."""
    return _KERNEL.search(name) is not None


def source(category: str, name: str) -> str | None:
    """Where an event has the times of a collective from; None if it is none."""
    if category == "kernel":
        return "kernel" if is_kernel(name) else None
    return "note" if category == "user_annotation" and _NOTE.fullmatch(name) else None


def message(name: str, start: float, end: float, arguments: dict[str, Any]) -> Message | None:
    """The message of such an event; None for a barrier and others that carry no data."""
    told = arguments.get("Collective name")
    noted = _NOTE.fullmatch(name)
    words = (told if isinstance(told, str) else noted[1] if noted else name).lower().replace("_", "")
    kind = next((kind for word, kind in KINDS.items() if word in words), None)
    if kind is None:
        return None
    ranks = arguments.get("Group size")
    group = arguments.get("Process Group Name")
    return Message(
        kind,
        start,
        end,
        _bytes(arguments),
        ranks if isinstance(ranks, int) and 0 < ranks <= MOST_RANKS else None,
        group if isinstance(group, str) else "",
    )


def _bytes(arguments: dict[str, Any]) -> int | None:
    """What a rank puts in; None if that was not recorded."""
    elements, width = arguments.get("In msg nelems"), dtype_bytes(arguments.get("dtype"))
    if isinstance(elements, int) and 0 < elements <= MOST_ELEMENTS and width:
        return elements * width
    shapes, dtypes = arguments.get("Input Dims"), arguments.get("Input type")
    if not isinstance(shapes, list) or not isinstance(dtypes, list) or not shapes or not dtypes:
        return None
    first = shapes[0]
    nested = isinstance(first, list) and bool(first) and isinstance(first[0], list)  # a list of tensors
    sizes = [shape_bytes(shape, dtypes[0]) for shape in (first if nested else [first])]
    return sum(size for size in sizes if size) or None
