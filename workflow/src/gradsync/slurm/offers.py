"""What a cluster offers: its partitions and nodes, read from the text of scontrol(1) and sinfo(1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The format in which `sinfo --Node` shall print nodes.
NODE_FORMAT = "%N|%T|%c|%m|%G"
# Words in a state of sinfo: the node takes no jobs now, maybe never again. A `*` at its end: it does not answer.
DOWN = ("down", "drain", "fail", "unk", "maint", "inval", "future", "error", "power", "reboot")


@dataclass(frozen=True)
class Node:
    """What a node of a partition claims; `memory` is in MB."""

    name: str
    state: str
    cpus: int
    memory: int
    gpus: int

    @property
    def up(self) -> bool:
        """Whether it takes jobs, now or when those that it runs have ended."""
        return not self.state.endswith("*") and not any(word in self.state for word in DOWN)


@dataclass(frozen=True)
class Partition:
    """`minutes` and `most_nodes` that a job may have, None without a limit; `state` is UP if jobs are started."""

    name: str
    default: bool
    state: str
    minutes: int | None
    most_nodes: int | None


def read_partitions(text: str) -> list[Partition]:
    """The partitions that `scontrol show partition --oneliner` prints."""
    rows = (dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines())
    return [
        Partition(
            name=row["PartitionName"],
            default=row.get("Default") == "YES",
            state=row.get("State", "UP"),
            minutes=minutes_of(row.get("MaxTime", "")),
            most_nodes=int(row["MaxNodes"]) if row.get("MaxNodes", "").isdecimal() else None,
        )
        for row in rows
        if "PartitionName" in row
    ]


def read_nodes(text: str) -> list[Node]:
    """The nodes that `sinfo --Node` prints in NODE_FORMAT."""
    nodes = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, state, cpus, memory, gres = line.split("|", 4)
        nodes.append(Node(name, state.lower(), int(cpus.rstrip("+")), int(memory.rstrip("+")), gpus_of(gres)))
    return nodes


def gpus_of(gres: str) -> int:
    """GPUs in a list of generic resources: `gpu:4`, `gpu:a100:4(S:0-1),license:1`, `(null)`."""
    entries = re.sub(r"\([^)]*\)", "", gres).split(",")
    parts = [entry.split(":") for entry in entries if entry.split(":")[0] == "gpu"]
    return sum(int(part[-1]) if part[-1].isdecimal() else 1 for part in parts)


def minutes_of(time: str) -> int | None:
    """Minutes of Slurm's `days-hours:minutes:seconds`; None for UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", time)
    if not match:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


def setting(config: str, name: str) -> str:
    """A value in what `scontrol show config` prints; "" if it has none of that name."""
    match = re.search(rf"^{name}\s*= *(\S+)", config, re.MULTILINE)
    return match.group(1) if match else ""
