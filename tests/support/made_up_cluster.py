"""A measured cluster that nobody measured: times around a line, nodes of two kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradsync import clusters
from gradsync.clusters import nodes, parts
from gradsync.costs import line
from gradsync.plan.workload import Workload
from tiny_workloads import workload

A, B = 2e-4, 1e-9  # seconds, seconds per byte
SIZES = [int(size) for size in np.geomspace(256, 64e6, 22)]


def drawn(rng: np.random.Generator, a: float, b: float, noise: float = 0.1, drift: float = 0.05) -> np.ndarray:
    """Mean seconds of seven sweeps; what drifts, drifts for a whole sweep.  # (sweeps, sizes)"""
    exact = a + b * np.array(SIZES)
    return exact * (1 + drift * rng.standard_normal((7, 1))) * (1 + noise * rng.standard_normal((7, len(SIZES))))


def all_reduce(count: int, each: int, a: float = A, b: float = B) -> clusters.AllReduce:
    sweeps = drawn(np.random.default_rng(count * 100 + each), a, b)
    mean = sweeps.mean(axis=0)
    points = [
        clusters.ClusterPoint(size, t * 0.9, t * 0.8, t * 1.1, t, 60)
        for size, t in zip(SIZES, mean.tolist(), strict=True)
    ]
    fit = line.through(SIZES, sweeps)
    return clusters.AllReduce(
        nodes=count, ranks_per_node=each, backend="gloo", device="cpu", line=fit, points=tuple(points)
    )


def kind(*hosts: str) -> nodes.Kind:
    return nodes.Kind(
        processor=nodes.Processor(model="a processor", architecture="x86_64", sockets=2, cores=8, threads=16, usable=8),
        memory_gib=64.0,
        interfaces=(
            nodes.Interface(name="eth0", kind="ethernet", gbit_per_second=10.0),
            nodes.Interface(name="mlx5_0:1", kind="infiniband", gbit_per_second=None),
        ),
        transport={"gloo_interface": "eth0", "nccl_interface": None},
        gpus=tuple(
            nodes.Gpu(name="g", pci=pci, memory_gib=16.0, compute_capability="7.0", multiprocessors=80)
            for pci in ("0:1", "0:2")
        ),
        gpu_links=nodes.GpuLinks(source="NVML", matrix=(("X", "NV2"), ("NV2", "X"))),
        software={"torch": "2"},
        hosts=hosts,
    )


def timed(seconds: float, ranks: int, **provenance: Any) -> Workload:
    net = workload([400, 800_000, 1200], [seconds, seconds / 3, seconds / 7], forward=seconds, update=seconds / 10)
    return net.model_copy(
        update={"name": "net", "provenance": {"batch": 4, "size": 32, "ranks": ranks, "device": "cpu", **provenance}}
    )


def four() -> list[Any]:
    """Parts of four nodes of two ranks: inside, between, and all but three nodes; layers with one and two a node."""
    these = nodes.Nodes(count=4, ranks_per_node=2, kinds=(kind("n1", "n2", "n3"), kind("n4")))
    links = {"inside": [(1, 2)], "between": [(2, 1), (4, 1)], "everything": [(2, 2), (4, 2)]}
    parts_of_four: list[Any] = [parts.NodesPart(nodes=these, measured="2026-01-02 03:04", notes=("a note",))]
    for kind_of, places in links.items():
        parts_of_four += [
            parts.LinkPart.model_validate({"kind": kind_of, "allreduce": all_reduce(n, each, A * n)})
            for n, each in places
        ]
    return parts_of_four + [
        parts.LayersPart(nodes=4, ranks_per_node=each, workload=timed(0.01 * each, 4 * each)) for each in (1, 2)
    ]
