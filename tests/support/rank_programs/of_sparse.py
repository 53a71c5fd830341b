"""Training with sparse messages of every kind: a small model on real ranks."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

import small_model
from gradsync import compressors, sparse
from gradsync.configuration.scheme import Scheme
from gradsync.runtime.devices import Device
from gradsync.runtime.group import Groups
from queued_device import QueuedProcessor
from rank_programs.of_schedules import train

DENSITY = 0.1
SCHEDULES = ("wfbp", "single", "priority", "kway")
TWO_LEVELS = ("hitopk wfbp", "hitopk kway", "hitopk all", "allgather_sparse wfbp")
QUEUED = ("hitopk wfbp", "allgather_sparse kway")  # also on a device that queues its work


def sparse_cases(ranks: int) -> dict[str, Scheme]:
    """Every sparse collective with every compressor, with schedules, on nodes of other sizes."""
    cases = {}
    for collective in sparse.names():
        for compressor in compressors.coding():  # with error feedback or without it, as is usual
            parts: dict[str, Any] = {"collective": collective, "compressor": compressor}
            cases[f"{collective} {compressor}"] = {**parts, "schedule": "mgwfbp"}
        for compressor in compressors.selecting():
            parts = {"collective": collective, "compressor": compressor, "density": DENSITY}
            for feedback in (True, False):
                name = f"{collective} {compressor}{'' if feedback else ' without feedback'}"
                cases[name] = {**parts, "schedule": "mgwfbp", "error_feedback": feedback}
        parts["compressor"] = "exact_topk"
        cases |= {f"{collective} {schedule}": {**parts, "schedule": schedule} for schedule in SCHEDULES}
        cases[f"{collective} all"] = {**parts, "schedule": "wfbp", "density": 1.0}
    for nodes in (1, ranks):
        shape = f"dense_gpu:{nodes},{ranks // nodes}"
        cases[f"hitopk {shape}"] = {"collective": "hitopk", "schedule": "wfbp", "topology": shape, "density": DENSITY}
    return {name: Scheme(name=name.replace(" ", "-").replace(":", "_"), **parts) for name, parts in cases.items()}


def sparse_schemes(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with each, on a processor and on a device that queues."""
    return _trained(rank, ranks, [*sparse_cases(ranks)])


def two_levels_of_sparse(rank: int, ranks: int) -> dict[str, Any]:
    """The same of those that tell nodes apart, or that others are held against."""
    return _trained(rank, ranks, TWO_LEVELS)


def _trained(rank: int, ranks: int, names: Sequence[str]) -> dict[str, Any]:
    devices: dict[str, Device | None] = {"": None, "queued ": QueuedProcessor()}
    parameters: dict[str, np.ndarray | str] = {}
    for label, device in devices.items():
        groups = Groups(device) if device else Groups()
        for name, scheme in sparse_cases(ranks).items():
            if name not in names or (device and name not in QUEUED):
                continue
            try:
                parameters[label + name] = train(small_model.of_scheme(scheme, ranks), rank, groups)
            except Exception:  # one that fails must not hide the others
                parameters[label + name] = traceback.format_exc()
        groups.close()
    return parameters
