"""gradsync: which gradient communication scheme is fastest on this cluster, for this model, by how much, and why."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("gradsync")
except PackageNotFoundError:  # run from the source tree without an install
    __version__ = "0+source"


def attach(
    model: Any,
    optimizer: Any,
    plan: Any,
    *,
    workload: Any = None,
    inputs: Any = None,
    all_reduce: str | None = None,
    find_unused_parameters: bool = False,
    broadcast_buffers: bool = True,
    scaler: Any = None,
) -> Any:
    """Let a plan carry the gradients of a torch module in a loop of one's own, as DDP does; gives the `Attached`.

    Collective over the ranks of a launch (torchrun's), all of which begin with rank 0's parameters and buffers. `plan`
    is a `Plan`, the file of one, the name of a scheme, or "auto" (with settings: `gradsync.attachment.Auto`): then one
    is chosen while the model trains, and `Attached.history` tells how. A scheme is planned from `workload`, a measured
    one or its file, or from the operations that the model has for `inputs` (one batch: a tensor, a tuple of arguments,
    or a dictionary of named ones), and from `all_reduce`, as --allreduce takes it (None: it is measured between the
    ranks). `find_unused_parameters` and `broadcast_buffers` (of a scheme, or "auto") are those of DDP. `scaler` is the
    torch.amp.GradScaler of the loop, if it has one: a plan that applies gradients itself has to know it. docs/attach.md
    tells what a loop may do.

    Raises RefusedError, an InputError that ends a program which does not catch it with status 2, on all ranks for a
    model, optimizer and plan that don't go together, and for a model that differs between ranks.
    """
    # nothing of torch is imported before somebody needs it
    return importlib.import_module("gradsync.attachment").attach(
        model,
        optimizer,
        plan,
        workload=workload,
        inputs=inputs,
        all_reduce=all_reduce,
        find_unused_parameters=find_unused_parameters,
        broadcast_buffers=broadcast_buffers,
        scaler=scaler,
    )
