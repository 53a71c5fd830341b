"""`gradsync.attach` in a loop of one's own, beside the same loop with DDP."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import attached_models as attached
import gradsync

Trained = tuple[dict[str, Any], list[float]]
"""The state of a model, and the losses on the way."""


def attached_beside_ddp(rank: int, ranks: int) -> dict[tuple[str, str], Trained]:
    """(case, scheme or "ddp") -> what was trained."""
    ended: dict[tuple[str, str], Trained] = {}
    for name, case in attached.CASES.items():
        model = attached.build(case)
        wrapped = DistributedDataParallel(model, find_unused_parameters=case.find_unused)
        losses = attached.train(wrapped, attached.optimizer(model), case, rank, wrapped.no_sync)
        ended[name, "ddp"] = attached.state(model), losses
        for scheme in case.schemes:
            model = attached.build(case)
            plan = attached.planned(scheme, model, ranks)
            if rank:  # as with DDP, rank 0's are those that count
                with torch.no_grad():
                    next(model.parameters()).add_(1.0)
            optimizer = attached.optimizer(model)
            handle = gradsync.attach(model, optimizer, plan, find_unused_parameters=case.find_unused)
            losses = attached.train(model, optimizer, case, rank, handle.no_sync)
            ended[name, scheme] = attached.state(model), losses
            handle.close()
    return ended
