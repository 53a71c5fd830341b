"""A recording from a Chakra trace that MLCommons' converter made of a PyTorch run.

That converter writes for each operator the time that it spent itself, without the operators inside it, in the order in
which they began, and no moments. So moments are those of a replay: the host does one operator after the other, and each
stream of a device its kernels in order, none before its launch. What the host idled in between is not in the trace.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Any

from gradsync.errors import InputError
from gradsync.interchange import collectives
from gradsync.interchange.calls import calls
from gradsync.interchange.chakra_file import Trace
from gradsync.interchange.chakra_schema import COLLECTIVES, NODE_TYPES, attributes
from gradsync.interchange.queue import Host, Kernel, Queue
from gradsync.interchange.recording import Event, Message, Recording
from gradsync.limits import MOST_MESSAGE

MICRO = 1e-6
USER_SCOPE = 7  # of an annotation: at::RecordScope
COLLECTIVE = NODE_TYPES.index("COMM_COLL_NODE")
MOST_NESTED = 1 << 16  # characters of a list of shapes


def of_trace(trace: Trace) -> Recording:
    """Raises InputError for a trace that has no operator with a time."""
    replay = _Replay(trace)
    if not any(event.end > event.start for event in replay.events):
        raise InputError(f"trace {trace.where}: no operator of the host has a time: convert it with the device's trace")
    operators = [event for event, scope in zip(replay.events, replay.scopes, strict=True) if scope != USER_SCOPE]
    annotations = [event for event, scope in zip(replay.events, replay.scopes, strict=True) if scope == USER_SCOPE]
    queue = Queue(replay.kernels) if replay.kernels else None
    return Recording(
        where=trace.where,
        operators=tuple(operators),
        annotations=tuple(annotations),
        messages=tuple(sorted(replay.messages, key=lambda message: message.start)),
        clock=Host(calls(operators)) if queue is None else queue,
        source={"device": "cpu" if queue is None else "cuda"},
    )


class _Replay:
    """Events of the host, kernels and messages of its nodes, in the order of their numbers."""

    def __init__(self, trace: Trace):
        self.where = trace.where
        self.events: list[Event] = []
        self.scopes: list[Any] = []
        self.kernels: list[Kernel] = []
        self.messages: list[Message] = []
        self.now = 0.0
        self.free: dict[str, float] = defaultdict(float)  # stream -> when it has done what was launched
        self.launched: dict[int, float] = {}  # node -> when the host did it
        self._ends = self._children_end(trace.nodes)
        for node in sorted(trace.nodes, key=lambda node: node.id):
            self._do(node, attributes(node))

    def _do(self, node: Any, told: dict[str, Any]) -> None:
        seconds = node.duration_micros * MICRO
        if told.get("is_cpu_op", True):
            begun = self.launched[node.id] = self.now
            self.now += seconds
            shapes, dtypes = _listed(node.inputs.shapes), _listed(node.inputs.types)
            self.events.append(
                Event(
                    node.name,
                    begun,
                    begun + self._ends[node.id],
                    ("host", str(told.get("tid", 0))),
                    _whole(told.get("seq_id")),
                    tuple(shapes),
                    tuple(map(str, dtypes)),
                    _whole(told.get("rf_id")),
                )
            )
            self.scopes.append(told.get("scope"))
            return
        launch = max((self.launched.get(parent, 0.0) for parent in node.ctrl_deps), default=self.now)
        stream = str(told.get("stream", 0))
        start = max(launch, self.free[stream])
        self.free[stream] = start + seconds
        if node.type == COLLECTIVE:
            number = told.get("comm_type", 0)
            kind = COLLECTIVES[number].lower() if isinstance(number, int) and 0 <= number < len(COLLECTIVES) else ""
            size = told.get("comm_size")
            if kind in collectives.KINDS.values():
                known = size if isinstance(size, int) and 0 < size <= MOST_MESSAGE else None
                self.messages.append(Message(kind, start, start + seconds, known, None, str(told.get("pg_name", ""))))
        else:
            self.kernels.append(Kernel(launch, start, start + seconds))

    def _children_end(self, nodes: list[Any]) -> dict[int, float]:
        """What each operator of the host takes with all that it calls, in seconds."""
        own = {node.id: node.duration_micros * MICRO for node in nodes if attributes(node).get("is_cpu_op", True)}
        whole = dict(own)
        for node in sorted(nodes, key=lambda node: -node.id):  # what is called has a larger number than its caller
            parents = [parent for parent in node.ctrl_deps if parent in own and parent < node.id]
            if node.id in own and parents:
                whole[parents[0]] += whole[node.id]
        return whole


def _listed(text: str) -> list[Any]:
    """The list that a text spells out as Python does; empty if it is none."""
    if len(text) > MOST_NESTED:
        return []
    try:
        value = ast.literal_eval(text) if text else []
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
