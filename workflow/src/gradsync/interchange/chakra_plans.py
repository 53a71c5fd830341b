"""The workload in Chakra traces that `chakra_export.py` wrote: each operation says what it was, and its seconds."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from gradsync.engine.clocks import NORMS, UPDATES
from gradsync.errors import InputError
from gradsync.files.problems import first_problem
from gradsync.interchange.chakra_export import OWN
from gradsync.interchange.chakra_file import Trace
from gradsync.interchange.chakra_schema import attributes
from gradsync.plan.workload import Layer, Workload


def is_plan(trace: Trace) -> bool:
    """Whether gradsync wrote it from a plan."""
    return attributes(trace.metadata).get("schema") == "gradsync"


def workload(trace: Trace) -> Workload:
    """What the first turn computes; raises InputError if that is no forward and backward with all its gradients.

    Of a turn with several passes, the first one's. Times of the update and the norm are those of the whole turn.
    """
    told = [attributes(node) for node in trace.nodes]
    first = [each for each in told if each.get(f"{OWN}turn") == 0]
    forward: dict[str | None, float] = {}
    backward: dict[str, dict[str, Any]] = {}
    after = {"update": 0.0, "norm": 0.0}
    for each in first:
        what, seconds, verb = each.get(f"{OWN}of"), each.get(f"{OWN}seconds", 0.0), each.get(f"{OWN}verb")
        if verb == "need" and what not in forward:
            forward[what] = seconds
        elif verb == "ready" and what and what not in backward:
            backward[what] = {
                "name": what,
                "bytes": each.get("tensor_size", 0),
                "backward_seconds": seconds,
                "dtype": each.get(f"{OWN}dtype", ""),
            }
        elif verb == "local" and (what in UPDATES or what in NORMS):
            after["update" if what in UPDATES else "norm"] += seconds
    if not backward:
        raise InputError(f"trace {trace.where}: its plan has no gradient that is ready by itself: nothing to plan anew")
    places = {layer: number for number, layer in enumerate(forward) if layer is not None}
    if places.keys() == backward.keys():
        for name, layer in backward.items():
            layer |= {"forward_seconds": forward[name], "forward_index": places[name]}
    metadata = attributes(trace.metadata)
    try:
        return Workload(
            name=metadata.get(f"{OWN}workload", "") or "chakra",
            forward_seconds=sum(forward.values()),
            update_seconds=after["update"],
            norm_seconds=after["norm"],
            layers=tuple(Layer.model_validate(layer) for layer in backward.values()),
            provenance={"imported": f"Chakra trace of plan {metadata.get(f'{OWN}plan', '')}"},
        )
    except ValidationError as error:
        raise InputError(f"trace {trace.where}: no workload: {first_problem(error, Workload)}") from None
