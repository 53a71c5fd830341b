"""The workload in Chakra traces that `chakra_export.py` wrote: the metadata of each has it whole, and says whose it is.

Nodes have the times of computation as the plan's clock gave them, whose sums are no longer the workload's own fields:
the update of a plan that clips, shards or repeats is several nodes, or a part of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradsync.errors import InputError
from gradsync.interchange.chakra_export import OWN
from gradsync.interchange.chakra_file import Trace
from gradsync.interchange.chakra_schema import attributes
from gradsync.plan.workload import Workload

# what all ranks of one export have in common, in words; a name may stand for several plans
OF_EXPORT = {
    "plan": "plan",
    "ranks": "number of ranks",
    "turns": "number of turns",
    "workload": "workload",
    "digest": "plan",
}


def is_plan(trace: Trace) -> bool:
    """Whether gradsync wrote it from a plan."""
    return attributes(trace.metadata).get("schema") == "gradsync"


def workload(traces: Sequence[Trace]) -> Workload:
    """The workload of an export; raises InputError for traces of several exports, a rank twice, or damaged metadata."""
    first = traces[0]
    expected = _told(first)
    places: dict[int, str] = {}
    for trace in traces:
        told = _told(trace)
        for key, word in OF_EXPORT.items():
            if told[key] != expected[key]:
                raise InputError(
                    f"trace {trace.where}: is of another {word} than {first.where}: give traces of one export"
                )
        rank = told["rank"]
        if rank in places:
            raise InputError(
                f"traces {places[rank]} and {trace.where} are both of rank {rank}: give one trace per rank"
            )
        places[rank] = trace.where
    return Workload.from_json(expected["workload"], f"trace {first.where}")


def _told(trace: Trace) -> dict[str, Any]:
    """What the metadata says of plan, rank and workload."""
    if not is_plan(trace):
        raise InputError(f"trace {trace.where}: gradsync did not write it, and others it did: give traces of one kind")
    metadata = attributes(trace.metadata)
    kinds = {"plan": str, "digest": str, "ranks": int, "turns": int, "workload": str, "rank": int}
    told: dict[str, Any] = {key: metadata.get(f"{OWN}{key}") for key in kinds}
    for key, kind in kinds.items():
        if type(told[key]) is not kind:
            raise InputError(f"trace {trace.where}: its metadata has no {OWN}{key}, or another than gradsync writes")
    if not 0 <= told["rank"] < told["ranks"]:
        raise InputError(f"trace {trace.where}: its metadata has rank {told['rank']} of {told['ranks']} ranks")
    return told
