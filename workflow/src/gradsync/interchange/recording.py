"""What a profiler recorded of one rank: operators, annotations, collectives, and where each gradient was ready.

Seconds on the clock of that rank, from its first event on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradsync.interchange.queue import Host, Queue


class Event(NamedTuple):
    """Something that took time. `sequence` joins an operator of forward with its backward (None: neither).

    `shapes` and `dtypes` are those of its inputs, as they were recorded; empty if they were not.
    """

    name: str
    start: float
    end: float
    thread: tuple[Any, Any] = (0, 0)
    sequence: int | None = None
    shapes: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ()
    identity: int | None = None  # by which an execution trace of the same run knows it


class Message(NamedTuple):
    """A collective: its kind as plans name it, bytes that a rank puts in (None: not recorded), ranks of its group."""

    kind: str
    start: float
    end: float
    bytes: int | None
    ranks: int | None
    group: str = ""


@dataclass(frozen=True)
class Recording:
    """Events in order of start; `clock` is that of computation, on the device or the host (`queue.py`)."""

    where: str
    operators: tuple[Event, ...]
    annotations: tuple[Event, ...]
    messages: tuple[Message, ...] = ()
    clock: Queue | Host = field(default_factory=Host)
    rank: int | None = None
    ranks: int | None = None
    source: dict[str, Any] = field(default_factory=dict)
