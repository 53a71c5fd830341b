"""Measure what so many parts of this machine take together: forward and backward, the sum of their gradients, update.

Each rank is a part, bound to cores of its own. An iteration takes as long as its slowest part.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from gradsync.clusters.chip_times import Timed
from gradsync.measure import layers
from gradsync.measure.passes import Pass
from gradsync.runtime import binding, models
from gradsync.runtime.devices import PROCESSOR
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.runtime.timing import collective_seconds

SUM_SECONDS = 1.0  # that the sum is timed for


def measure(name: str, batch: int, iterations: int, size: int | None = None) -> dict[str, Any]:
    """`timed` (a `Timed`), `model`, `batch` of a part, `weights_bytes`, `provenance`; collective over the parts.

    Raises InputError for more parts than cores.
    """
    others, parts = OtherWork(), dist.get_world_size()
    own = binding.bind()
    step = Pass(name, size, batch, 0, PROCESSOR)
    step.watch()
    times = layers.slowest(layers.timed(step, iterations))  # (iterations, 3): update, forward, backward
    weights = 4 * len(step.flat)
    sums: list[float] = []
    if parts > 1:
        sums = collective_seconds("shared_tree", (parts,), [weights], iterations, SUM_SECONDS)[weights]
    timed = Timed(
        parts=parts,
        cores=len(own),
        compute_seconds=times[:, 1:].sum(axis=1).tolist(),
        update_seconds=times[:, 0].tolist(),
        sum_seconds=sums,
    )
    return {
        "timed": timed.model_dump(),
        "model": models.title(name),
        "batch": step.samples.batch,
        "weights_bytes": weights,
        "provenance": {"torch": torch.__version__, "size": step.samples.size, **machines(), **others.share()},
    }
