"""The benchmark of attached plans, in small, and what it says of one that trains something else."""

from __future__ import annotations

from typing import Any

import torch

from gradsync.benchmarks import attach_speed
from gradsync.errors import RunError


def attach_benchmark(rank: int, ranks: int) -> tuple[list[dict[str, Any]], str]:
    """Rows of few pairs, and the message about a loop whose last bias is another one on this rank."""
    attach_speed.BLOCK_SECONDS = 0.01
    subject = attach_speed.Subject("lenet5", 2)
    rows = list(attach_speed.of_model(subject, rank, ranks, pairs=2))
    step = attach_speed.Loop.step

    def lossy(loop: attach_speed.Loop) -> None:
        step(loop)
        if loop.attached is not None:
            with torch.no_grad():
                list(loop.model.parameters())[-1].add_(1e-6)

    attach_speed.Loop.step = lossy
    try:
        next(attach_speed.of_model(subject, rank, ranks, pairs=1))
    except RunError as error:
        return rows, str(error)
    finally:
        attach_speed.Loop.step = step
    return rows, ""
