"""How many floating point operations the layers of a model take: counted on its definition, nothing is computed."""

from __future__ import annotations

from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from gradsync.errors import InputError
from gradsync.runtime import models
from gradsync.workload import Layer, Workload

BACKWARD = 2  # products for each one of forward: gradients of the inputs and of the parameters
FLOAT32 = 4  # bytes


@cache
def forward(name: str, size: int | None = None) -> dict[str, int]:
    """Operations of forward for one sample, by module that computes any; raises InputError for an unknown model."""
    model = _model(name)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model(torch.empty(2, *models.shape(name, size)))
    leaves = {child for child, module in model.named_modules() if not any(module.children())}
    root = type(model).__name__
    counts = {
        place.removeprefix(f"{root}."): sum(operations.values()) // 2  # of two samples
        for place, operations in counter.get_flop_counts().items()
    }
    return {module: count for module, count in counts.items() if module in leaves and count}


@cache
def parameters(name: str) -> int:
    """Parameters of a model; raises InputError for an unknown one."""
    return sum(parameter.numel() for parameter in _model(name).parameters())


def workload(name: str, operations_per_second: float, batch: int, size: int | None = None) -> Workload:
    """The model's layers at an even rate: forward, and twice as many operations backward, a sample `batch` times.

    The bias of a layer is ready with its weight. Raises InputError for an unknown model or a rate that makes no sense.
    """
    if not operations_per_second > 0:
        raise InputError(f"model {name!r}: {operations_per_second} operations a second: must be above 0")
    counted, model = forward(name, size), _model(name)
    layers: list[Layer] = []
    for parameter, tensor in reversed(list(model.named_parameters())):
        module = parameter.rpartition(".")[0]
        share = BACKWARD * batch * counted.get(module, 0) / operations_per_second
        # the parameters of a module follow one another: the first takes its time
        alone = not layers or layers[-1].name.rpartition(".")[0] != module
        layers.append(Layer(name=parameter, bytes=FLOAT32 * tensor.numel(), backward_seconds=share if alone else 0.0))
    return Workload(
        name=name,
        forward_seconds=batch * sum(counted.values()) / operations_per_second,
        layers=tuple(layers),
        provenance={"operations_per_second": operations_per_second, "batch": batch, "source": "operations counted"},
    )


def _model(name: str) -> torch.nn.Module:
    with torch.device("meta"):
        return models.get(name).build().train()  # auxiliary heads compute in training alone
