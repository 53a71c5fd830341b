"""A measured cluster as text: the YAML file with a comment for each part, and the tables that people read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gradsync.clusters import AllReduce, ClusterPoint, Profile
from gradsync.clusters.nodes import Kind
from gradsync.costs import line
from gradsync.files.results import write_whole
from gradsync.statistics.intervals import NONE

COMMENTS = {
    "version": "A measured cluster. Seconds, bytes, GiB, Gbit/s.",
    "nodes": "What the nodes are; nodes that are all alike are one entry.",
    "allreduce": (
        "All-reduces inside a node, between nodes (one rank on each), over everything (several ranks on several).\n"
        "Points are [" + ", ".join(ClusterPoint._fields) + "].\n"
        f"Intervals of a and b: {line.METHOD}.\n"
        "Planners take the pieces through the mean seconds of the points, not the line."
    ),
    "workloads": "Layer times of models: totals in seconds, tensor by tensor in the file named.",
    "notes": "What whoever plans with these numbers must know.",
}


class _Row(list[Any]):
    """Written in one line."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(
    _Row, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True)
)


def _rows(value: Any) -> Any:
    """Lists of numbers and single words in one line each."""
    if isinstance(value, dict):
        return {key: _rows(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        plain = not any(isinstance(inner, dict | list | tuple) or " " in str(inner) for inner in value)
        return _Row(value) if plain else [_rows(inner) for inner in value]
    return value


def to_yaml(profile: Profile) -> str:
    """The file: every section after a comment that says what it holds; sections of later profilers are null."""
    parts: list[str] = []
    for key, value in profile.model_dump(mode="python").items():
        comment = COMMENTS.get(key)
        if value is None:
            comment = f"Not measured yet: {Profile.model_fields[key].description}."
        if comment:
            parts.append("\n" * bool(parts) + "".join(f"# {text}\n" for text in comment.splitlines()))
        parts.append(yaml.dump({key: _rows(value)}, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True))
    return "".join(parts)


def save(profile: Profile, path: Path) -> None:
    """Write the file, whole or not at all."""
    write_whole(path, to_yaml(profile))


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Columns, the first one on the left, the others on the right."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    return "\n".join(
        "  "
        + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (heads, *rows)
    )


def show(profile: Profile) -> str:
    """The whole profile for people."""
    nodes = profile.nodes
    parts = [
        f"{profile.name}: {nodes.count} node(s), {nodes.ranks_per_node} rank(s) on each, measured {profile.measured}"
    ]
    parts += [_kind(kind) for kind in nodes.kinds]
    heads = ["all-reduce", "ranks", "a (us)", "95 %", "b (ns/B)", "95 %", "residual", "worst", "points", "bytes"]
    rows = [
        [name, *_line(measured)]
        for name in ("inside", "between", "everything")
        for measured in getattr(profile.allreduce, name).measured or ()
    ]
    parts.append(table(heads, rows))
    for name in ("inside", "between", "everything"):
        reason = getattr(profile.allreduce, name).reason
        if reason:
            parts.append(f"  {name}: not measured: {reason}")
    heads = ["model", "batch", "size", "ranks a node", "device", "tensors", "MB", "forward (ms)", "backward", "update"]
    rows = [
        [
            *(timed.model, str(timed.batch or "?"), str(timed.size or "?"), str(timed.ranks_per_node), timed.device),
            *(str(timed.tensors), f"{timed.bytes / 1e6:.2f}"),
            *(f"{1e3 * t:.3g}" for t in (timed.forward_seconds, timed.backward_seconds, timed.update_seconds)),
        ]
        for timed in profile.workloads
    ]
    parts.append(table(heads, rows) if rows else "  no layer times")
    missing = [key for key in ("contention", "topk", "io") if getattr(profile, key) is None]
    parts.append(
        "  not measured yet: " + "; ".join(f"{key}: {Profile.model_fields[key].description}" for key in missing)
    )
    return "\n\n".join([*parts, *("  " + note for note in profile.notes)])


def _kind(kind: Kind) -> str:
    processor = kind.processor
    numa = f", {len(processor.numa)} NUMA part(s)" if processor.numa else ""
    names = ", ".join(kind.hosts[:4]) + (f" and {len(kind.hosts) - 4} more" if len(kind.hosts) > 4 else "")
    speeds = ", ".join(
        f"{each.name} ({each.kind}, "
        + (f"{each.gbit_per_second:g} Gbit/s)" if each.gbit_per_second else "speed not stated)")
        for each in kind.interfaces
    )
    lines = [
        f"  {names}: {processor.model}, {processor.sockets} socket(s), {processor.cores} cores{numa}, "
        f"{kind.memory_gib:g} GiB",
        f"    network: {speeds or 'none'}; used: " + ", ".join(f"{k} {v}" for k, v in kind.transport.items() if v),
        "    " + ", ".join(f"{key} {value}" for key, value in kind.software.items()),
    ]
    for gpu in kind.gpus:
        lines.append(
            f"    GPU {gpu.pci}: {gpu.name}, {gpu.memory_gib:g} GiB, compute capability {gpu.compute_capability}"
        )
    if kind.gpu_links:
        lines += [f"    links between GPUs ({kind.gpu_links.source}):"]
        lines += ["      " + " ".join(f"{cell:>5}" for cell in row) for row in kind.gpu_links.matrix]
    return "\n".join(lines)


def _line(measured: AllReduce) -> list[str]:
    def ends(interval: tuple[float, float] | None, unit: float) -> str:
        return f"{interval[0] * unit:.3g}..{interval[1] * unit:.3g}" if interval else NONE

    fit = measured.line
    return [
        f"{measured.nodes} x {measured.ranks_per_node}",
        *(f"{fit.a_seconds * 1e6:.4g}", ends(fit.a_interval, 1e6)),
        *(f"{fit.b_seconds_per_byte * 1e9:.4g}", ends(fit.b_interval, 1e9)),
        *(f"{fit.mean_residual:.1%}", f"{fit.worst_residual:.0%}"),
        *(str(fit.points), f"{fit.from_bytes} to {fit.to_bytes}"),
    ]
