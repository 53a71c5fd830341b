"""The Chrome trace that PyTorch's profiler (Kineto) writes, of a CPU or a GPU, packed or not.

Kineto writes what profiles hold by itself, sometimes with a key twice, so the JSON is read less strictly than a file
that people write. Microseconds become seconds from the first event on; `baseTimeNanoseconds` is kept, by which the
clocks of several ranks compare.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.interchange import collectives
from gradsync.interchange.calls import calls
from gradsync.interchange.packed import unpacked
from gradsync.interchange.queue import Host, Kernel, Queue
from gradsync.interchange.recording import Event, Message, Recording
from gradsync.limits import MOST_RANKS

MICRO = 1e-6
KINDS = {"operator": "cpu_op", "runtime": "cuda_runtime", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}  # older names
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime", "privateuse1_runtime")
READ = ("cpu_op", "user_annotation", *ON_DEVICE, *LAUNCHES)
MOST_MICROS = float(1 << 62)  # of a moment: counted from 1970, that of today is a thousandth of it
MOST_NANOSECONDS = 1 << 63
TENSORFLOW = ("/host:CPU", "/device:", "tensorflow", "TensorFlow", "XLA")


def read(path: Path) -> Recording:
    """Raises InputError if the file is no trace of PyTorch's profiler, or has an event without a time."""
    text = unpacked(reading.raw(path, "trace"), f"trace {path}")
    return of_content(_parsed(text, str(path)), str(path))


def _parsed(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        cut = isinstance(error, json.JSONDecodeError) and not error.doc[error.pos + 1 :].strip()
        hint = ": the file is cut off: was the program still writing it?" if cut else ""
        raise InputError(f"trace {where}: not JSON: {error}{hint}") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"trace {where}: not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"trace {where}: lists and objects are nested too deep") from None


def of_content(content: Any, where: str) -> Recording:
    """The recording in parsed JSON; raises InputError as `read` does."""
    told = content if isinstance(content, dict) else {"traceEvents": content}
    listed = told.get("traceEvents")
    if not isinstance(listed, list):
        raise InputError(f"trace {where}: not a Chrome trace: it has no list traceEvents")
    entries = [entry for entry in listed if isinstance(entry, dict)]
    timed = [_timed(entry, where) for entry in entries if entry.get("ph") == "X" and _kind(entry) in READ]
    if not any(_kind(entry) == "cpu_op" for entry in timed):
        raise InputError(f"trace {where}: {_other(entries)}")
    origin = min(entry["ts"] for entry in timed)
    distributed = told.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank, ranks = _place(distributed, where)
    made = _Made(timed, origin)
    operators, annotations = made.events("cpu_op"), made.events("user_annotation")
    queue = made.queue()
    return Recording(
        where=where,
        operators=operators,
        annotations=annotations,
        messages=made.messages(),
        clock=Host(calls(operators)) if queue is None else queue,
        rank=rank,
        ranks=ranks,
        source={
            "device": "cpu" if queue is None else "cuda",
            "origin_seconds": origin * MICRO + _base(told, where) * 1e-9,
            **({"backend": distributed["backend"]} if isinstance(distributed.get("backend"), str) else {}),
        },
    )


class _Made:
    """Events, messages and the queue of entries that took time."""

    def __init__(self, entries: list[dict[str, Any]], origin: float):
        self.entries, self.origin = entries, origin

    def _span(self, entry: dict[str, Any]) -> tuple[float, float]:
        start = (entry["ts"] - self.origin) * MICRO
        return start, start + entry["dur"] * MICRO

    def _of(self, *kinds: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Entries of these kinds, each with its arguments."""
        for entry in self.entries:
            if _kind(entry) in kinds:
                arguments = entry.get("args")
                yield entry, arguments if isinstance(arguments, dict) else {}

    def events(self, kind: str) -> tuple[Event, ...]:
        """In order of start; of two that begin together, the one that contains the other is first."""
        made = []
        for entry, arguments in self._of(kind):
            shapes, dtypes = arguments.get("Input Dims"), arguments.get("Input type")
            made.append(
                Event(
                    str(entry.get("name", "")),
                    *self._span(entry),
                    (str(entry.get("pid")), str(entry.get("tid"))),
                    _whole(arguments.get("Sequence number")),
                    tuple(shapes) if isinstance(shapes, list) else (),
                    tuple(map(str, dtypes)) if isinstance(dtypes, list) else (),
                    _whole(arguments.get("Record function id")),
                )
            )
        return tuple(sorted(made, key=lambda event: (event.start, -event.end)))

    def queue(self) -> Queue | None:
        """Of the kernels that compute; None if no device was recorded."""
        launched = {}
        for entry, arguments in self._of(*LAUNCHES):
            launched[_whole(arguments.get("correlation"))] = self._span(entry)[0]
        kernels = []
        for entry, arguments in self._of(*ON_DEVICE):
            start, end = self._span(entry)
            if not collectives.is_kernel(str(entry.get("name", ""))):
                kernels.append(Kernel(launched.get(_whole(arguments.get("correlation")), start), start, end))
        return Queue(kernels) if kernels else None

    def messages(self) -> tuple[Message, ...]:
        """Kernels of NCCL if there are any, else what Gloo noted."""
        noted = [*self._of("kernel", "user_annotation")]
        of_name = [(collectives.source(_kind(e), str(e.get("name", ""))), e, a) for e, a in noted]
        best = next((source for source in collectives.SOURCES if any(s == source for s, _, _ in of_name)), None)
        made = [
            collectives.message(str(entry.get("name", "")), *self._span(entry), arguments)
            for source, entry, arguments in of_name
            if source == best and best is not None
        ]
        return tuple(sorted((each for each in made if each is not None), key=lambda each: each.start))


def _kind(entry: dict[str, Any]) -> str:
    kind = str(entry.get("cat", "")).lower()
    return KINDS.get(kind, kind)


def _timed(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """The entry, its moment and its duration made numbers; raises InputError if it has none, or impossible ones."""
    times = {}
    for key, word, least in (("ts", "moment", -MOST_MICROS), ("dur", "duration", 0.0)):
        try:
            times[key] = math.nan if isinstance(entry.get(key), bool) else float(entry[key])
        except (KeyError, TypeError, ValueError, OverflowError):
            times[key] = math.nan
        if not least <= times[key] <= MOST_MICROS:  # nor if it is no number
            told = f"{word} {ascii(entry[key])[:40]}" if key in entry else f"no {word}"
            raise InputError(
                f"trace {where}: event {ascii(entry.get('name'))[:80]} has {told} ({key}, microseconds): without its "
                "time the steps can't be told: record anew"
            )
    entry.update(times)
    return entry


def _place(distributed: dict[str, Any], where: str) -> tuple[int | None, int | None]:
    """The rank and the number of ranks, None each if it isn't told."""
    rank, ranks = _whole(distributed.get("rank")), _whole(distributed.get("world_size"))
    if (rank is not None and rank < 0) or (ranks is not None and not (rank or 0) < ranks <= MOST_RANKS):
        raise InputError(
            f"trace {where}: distributedInfo has rank {rank} of a world_size {ranks}: the trace is damaged"
        )
    return rank, ranks


def _base(told: dict[str, Any], where: str) -> int:
    """`baseTimeNanoseconds`, from which its clock counts; 0 without one."""
    base = _whole(told.get("baseTimeNanoseconds")) or 0
    if abs(base) > MOST_NANOSECONDS:
        raise InputError(f"trace {where}: baseTimeNanoseconds is no moment that a clock tells: the trace is damaged")
    return base


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _other(entries: Iterable[dict[str, Any]]) -> str:
    """What a trace without operators of PyTorch is."""
    names = []
    for entry in entries:
        arguments = entry.get("args")
        if entry.get("ph") == "M" and isinstance(arguments, dict):
            names.append(str(arguments.get("name", "")))
    if any(word in name for word in TENSORFLOW for name in names):
        return (
            "a trace of TensorFlow, whose gradients are not marked: gradsync reads PyTorch's profiler; write the "
            "workload by hand (docs/your-model.md)"
        )
    return (
        "no trace of PyTorch's profiler: it has no operator (category cpu_op): record with "
        "torch.profiler.profile(activities=[ProfilerActivity.CPU, ..]) and export_chrome_trace"
    )
