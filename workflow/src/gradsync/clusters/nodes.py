"""What the nodes of a measured cluster are."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Closed(BaseModel):
    """A part of the file whose unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NumaPart(Closed):
    """Processors that share a memory; `cpus` as Linux lists them (0-15,32-47)."""

    number: int
    cpus: str
    memory_gib: float


class Processor(Closed):
    """`cores` of all sockets; `usable` by one rank, if ranks are bound or confined."""

    model: str
    architecture: str
    sockets: int
    cores: int
    threads: int
    usable: int
    numa: tuple[NumaPart, ...] = ()


class Interface(Closed):
    """A network interface or InfiniBand port, with the speed that its driver states (None: it states none)."""

    name: str
    kind: Literal["ethernet", "infiniband", "loopback", "other"]
    gbit_per_second: float | None


class Gpu(Closed):
    """A device as its driver describes it."""

    name: str
    pci: str
    memory_gib: float
    compute_capability: str
    multiprocessors: int


class GpuLinks(Closed):
    """Link between GPU i and j, in the words of `nvidia-smi topo -m`.

    NV# so many NVLinks, PIX one PCIe bridge, PXB several, PHB a host bridge, NODE the interconnect inside a NUMA part,
    SYS between NUMA parts, INT one board, X itself.
    """

    source: str
    matrix: tuple[tuple[str, ...], ...]


class Node(Closed):
    """What one node is. `transport`: what ranks talk over, which the environment or the host's own name decides."""

    processor: Processor
    memory_gib: float
    interfaces: tuple[Interface, ...]
    transport: dict[str, str | None]
    gpus: tuple[Gpu, ...] = ()
    gpu_links: GpuLinks | None = None
    software: dict[str, str]


class Kind(Node):
    """Nodes that are all alike."""

    hosts: tuple[str, ...] = Field(min_length=1)


class Nodes(Closed):
    """All nodes that took part."""

    count: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    kinds: tuple[Kind, ...] = Field(min_length=1)
