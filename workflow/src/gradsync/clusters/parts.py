"""Parts of a cluster profile, each measured by itself and kept in a file, and the profile made of them.

A part remembers what it was measured with (`key`): a part of another allocation, size or version never replaces it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError

from gradsync.clusters import VERSION, AllReduce, Link, Links, Profile, Timed, text
from gradsync.clusters.nodes import Nodes
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.files.results import write_whole
from gradsync.plan.workload import Workload

KINDS = ("inside", "between", "everything")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    key: dict[str, Any] = Field(default_factory=dict)


class NodesPart(_Part):
    """What the nodes are; `measured`: when (UTC); `reasons`: why links of a kind have no times."""

    part: Literal["nodes"] = "nodes"
    nodes: Nodes
    measured: str
    reasons: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class LinkPart(_Part):
    """All-reduces of one number of ranks; `kind`: inside, between or everything."""

    part: Literal["allreduce"] = "allreduce"
    kind: Literal["inside", "between", "everything"]
    allreduce: AllReduce


class LayersPart(_Part):
    """Layer times of one model, measured with so many ranks at a time."""

    part: Literal["layers"] = "layers"
    nodes: PositiveInt
    ranks_per_node: PositiveInt
    workload: Workload


Part = Annotated[NodesPart | LinkPart | LayersPart, Field(discriminator="part")]
_ADAPTER: TypeAdapter[Part] = TypeAdapter(Part)


def read(path: Path) -> Part:
    """A part's file; raises InputError if it can't be read or is none."""
    content = reading.json_of(path, "cluster part")
    try:
        return _ADAPTER.validate_python(content)
    except ValidationError as error:
        raise InputError(f"cluster part {path}: no part of a cluster profile: {first_problem(error)}") from None


def write(part: Part, path: Path) -> None:
    """Write a part's file, whole or not at all."""
    write_whole(path, json.dumps(part.model_dump(mode="json"), indent=1) + "\n")


def layers(workload: Workload, nodes: Nodes, source: str) -> LayersPart:
    """The part of a workload from `source` that `measure layers` wrote: its provenance says with how many ranks."""
    ranks = workload.provenance.get("ranks")
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise InputError(f"{source}: provenance.ranks: needs the number of ranks that computed at the same time")
    count = -(-ranks // nodes.ranks_per_node)
    return LayersPart(nodes=count, ranks_per_node=-(-ranks // count), workload=workload)


def assemble(name: str, parts: Sequence[Part], output: Path) -> Profile:
    """Write `output` and the workloads beside it.

    Raises InputError for no or two descriptions of the nodes, or two measurements of one thing.
    """
    twice = [name for name, times in Counter(_title(part) for part in parts).items() if times > 1 and name]
    if twice:
        raise InputError(f"cluster {name}: {twice[0]}: measured twice: give one of them")
    descriptions = [part for part in parts if isinstance(part, NodesPart)]
    if len(descriptions) != 1:
        raise InputError(f"cluster {name}: {len(descriptions)} descriptions of its nodes: needs one")
    (description,) = descriptions
    timed = []
    for part in sorted((part for part in parts if isinstance(part, LayersPart)), key=_order):
        file = Path(output.stem) / f"{part.workload.name}-{part.nodes}x{part.ranks_per_node}.json"
        write_whole(output.parent / file, part.workload.to_json())
        timed.append(_timed(part, str(file)))
    links = {kind: _link(kind, description, parts) for kind in KINDS}
    try:
        profile = Profile(
            version=VERSION,
            profile="measured",
            name=name,
            measured=description.measured,
            nodes=description.nodes,
            allreduce=Links(**links),
            workloads=tuple(timed),
            notes=(*description.notes, *_crowded(description.nodes, links)),
        )
    except ValidationError as error:
        raise InputError(f"cluster {name}: {first_problem(error)}") from None
    text.save(profile, output)
    return profile


def _title(part: Part) -> str:
    """A name for what is measured once; nodes have an error of their own."""
    if isinstance(part, LinkPart):
        return f"all-reduces {part.kind}, {part.allreduce.place}"
    if isinstance(part, LayersPart):
        return f"layers of {part.workload.name}, {part.ranks_per_node} rank(s) on each of {part.nodes} node(s)"
    return ""


def _order(part: LayersPart) -> tuple[str, int, int]:
    return part.workload.name, part.nodes, part.ranks_per_node


def _link(kind: str, description: NodesPart, parts: Sequence[Part]) -> Link:
    measured = [part.allreduce for part in parts if isinstance(part, LinkPart) and part.kind == kind]
    if not measured:
        return Link(measured=None, reason=description.reasons.get(kind, "no such part was given"))
    return Link(measured=tuple(sorted(measured, key=lambda each: (each.nodes, each.ranks_per_node))))


def _crowded(nodes: Nodes, links: dict[str, Link]) -> list[str]:
    """Notes on times of ranks that shared cores."""
    cores = min(kind.processor.cores for kind in nodes.kinds)
    on_cores = [each for link in links.values() for each in link.measured or () if each.device == "cpu"]
    return [
        f"all-reduces of {each.place}: these ranks shared {cores} cores, and waited for one another"
        for each in on_cores
        if each.ranks_per_node > cores
    ]


def _timed(part: LayersPart, file: str) -> Timed:
    workload, provenance = part.workload, part.workload.provenance
    for key in ("batch", "size"):
        value = provenance.get(key)
        if not isinstance(value, int | None) or isinstance(value, bool):
            shown = reading.shown(str(value))
            raise InputError(f"workload {workload.name!r}: provenance.{key}: {shown}: a whole number, or left out")
    return Timed(
        model=workload.name,
        file=file,
        device=str(provenance.get("device", "unknown")),
        batch=provenance.get("batch"),
        size=provenance.get("size"),
        nodes=part.nodes,
        ranks_per_node=part.ranks_per_node,
        tensors=len(workload.layers),
        bytes=workload.bytes,
        forward_seconds=float(f"{workload.forward_seconds:.6g}"),
        backward_seconds=float(f"{workload.backward_seconds:.6g}"),
        update_seconds=float(f"{workload.update_seconds:.6g}"),
    )
