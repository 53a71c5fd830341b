"""Training whose messages are summed by level: a small model on real ranks."""

from __future__ import annotations

import traceback
from typing import Any

import small_model
from gradsync.configuration.scheme import Scheme
from gradsync.runtime.devices import Device
from gradsync.runtime.group import Groups
from queued_device import QueuedProcessor
from rank_programs.of_schedules import train

SCHEDULES = ("wfbp", "mgwfbp", "kway", "single", "striped")


def level_cases(ranks: int) -> dict[str, Scheme]:
    """Schedules on nodes of as many ranks as there are nodes, if that goes; one of them on nodes of other sizes."""
    shapes = {f"dense_gpu:{nodes},{ranks // nodes}" for nodes in (1, 2, ranks) if ranks % nodes == 0}
    parts = [*((schedule, "") for schedule in SCHEDULES), *(("wfbp", shape) for shape in sorted(shapes))]
    return {
        f"{schedule} {shape}".strip(): Scheme(
            name="by_level", schedule=schedule, collective="native_by_level", topology=shape
        )
        for schedule, shape in parts
    }


def summed_by_level(rank: int, ranks: int) -> dict[str, Any]:
    """Parameters after training with each, on a processor and on a device that queues."""
    devices: dict[str, Device | None] = {"": None, "queued ": QueuedProcessor()}
    parameters: dict[str, Any] = {}
    for label, device in devices.items():
        groups = Groups(device) if device else Groups()
        for name, scheme in level_cases(ranks).items():
            try:
                parameters[label + name] = train(small_model.of_scheme(scheme, ranks), rank, groups)
            except Exception:  # one that fails must not hide the others
                parameters[label + name] = traceback.format_exc()
        groups.close()
    return parameters
