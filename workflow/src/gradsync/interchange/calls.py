"""When the host hands messages over: it computes nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from gradsync.interchange.recording import Event


def calls(operators: Iterable[Event]) -> list[tuple[float, float]]:
    """Start and end of the calls of c10d, outermost ones, in order."""
    spans: list[tuple[float, float]] = []
    for event in operators:
        if event.name.startswith("c10d::") and (not spans or event.start >= spans[-1][1]):
            spans.append((event.start, event.end))
    return spans
