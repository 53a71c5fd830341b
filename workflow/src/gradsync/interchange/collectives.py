"""Collectives in a profile of PyTorch: which events are one, of what kind, how large, between how many ranks."""

from __future__ import annotations

import re
from typing import Any

from gradsync.interchange.recording import Message
from gradsync.interchange.tensors import dtype_bytes, shape_bytes

# words of NCCL's kernels, of Gloo's and NCCL's notes and of c10d's, without underscores -> kinds as plans name them
KINDS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "reduce": "reduce",
}
SOURCES = ("kernel", "note", "call")  # of times, the best first: a call of c10d ends before its message does
_KERNEL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel", re.IGNORECASE)
_NOTE = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl):(\w+)")
CALL = "record_param_comms"


def is_kernel(name: str) -> bool:
    """Whether a kernel of that name is a collective."""
    return _KERNEL.search(name) is not None


def source(category: str, name: str) -> str | None:
    """Where an event has the times of a collective from; None if it is none."""
    if category == "kernel":
        return "kernel" if is_kernel(name) else None
    if _NOTE.fullmatch(name):
        return "note"
    return "call" if name == CALL else None


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
        ranks if isinstance(ranks, int) and ranks > 0 else None,
        group if isinstance(group, str) else "",
    )


def _bytes(arguments: dict[str, Any]) -> int | None:
    """What a rank puts in; None if that was not recorded."""
    elements, width = arguments.get("In msg nelems"), dtype_bytes(arguments.get("dtype"))
    if isinstance(elements, int) and elements > 0 and width:
        return elements * width
    shapes, dtypes = arguments.get("Input Dims"), arguments.get("Input type")
    if not isinstance(shapes, list) or not isinstance(dtypes, list) or not shapes or not dtypes:
        return None
    first = shapes[0]
    nested = isinstance(first, list) and bool(first) and isinstance(first[0], list)  # a list of tensors
    sizes = [shape_bytes(shape, dtypes[0]) for shape in (first if nested else [first])]
    return sum(size for size in sizes if size) or None
