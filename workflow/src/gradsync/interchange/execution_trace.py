"""PyTorch's execution trace (ExecutionTraceObserver): shapes and types of gradients, if a profile has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.interchange.packed import unpacked
from gradsync.interchange.passes import is_gradient
from gradsync.interchange.sizes import Shape, shape_of


def gradients(path: Path) -> dict[int, tuple[Shape, str]] | list[tuple[Shape, str]]:
    """Shapes and types of its gradients: by the identity that a profile of the same run knows, else those of one step.

    Raises InputError if the file is no execution trace, or has no gradient.
    """
    nodes = _nodes(path)
    by_identity: dict[int, tuple[Shape, str]] = {}
    in_order: list[tuple[Shape, str]] = []
    for node in nodes:
        if not is_gradient(str(node.get("name", ""))):
            continue
        inputs = node.get("inputs")
        shapes, dtypes = (
            (inputs.get("shapes"), inputs.get("types"))
            if isinstance(inputs, dict)
            else (node.get("input_shapes"), node.get("input_types"))
        )
        if not isinstance(shapes, list) or not isinstance(dtypes, list):
            continue
        known = shape_of(shapes, [str(each) for each in dtypes])
        if known is None:
            continue
        in_order.append(known)
        identity = _identity(node)
        if identity is not None:
            by_identity[identity] = known
    if not in_order:
        raise InputError(f"execution trace {path}: has no gradients: record training with it, not inference")
    return by_identity if len(by_identity) == len(in_order) else in_order


def _nodes(path: Path) -> list[dict[str, Any]]:
    text = unpacked(reading.raw(path, "execution trace"), f"execution trace {path}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"execution trace {path}: not JSON, or cut off: {str(error)[:200]}") from None
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(nodes, list):
        raise InputError(f"execution trace {path}: not what ExecutionTraceObserver writes: it has no list of nodes")
    return [node for node in nodes if isinstance(node, dict)]


def _identity(node: dict[str, Any]) -> int | None:
    """`rf_id`, which profiles call the id of a record function."""
    value = node.get("rf_id")
    told = node.get("attrs")
    for each in told if isinstance(told, list) else ():
        if isinstance(each, dict) and each.get("name") == "rf_id":
            value = each.get("value")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
