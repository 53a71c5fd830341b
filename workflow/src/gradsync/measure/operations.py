"""How many floating point operations the layers of a model take: counted on its definition, nothing is computed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from gradsync.errors import InputError
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from gradsync.runtime.forward_order import by_parameter, forward_order
from gradsync.runtime.sharded_blocks import block_of

BACKWARD = 2  # products for each one of forward: gradients of the inputs and of the parameters


class Counted(NamedTuple):
    """Operations of forward for one sample.

    `by_module`: by the module that computes them itself, not in a module inside it; that of the whole model is "".
    `by_parameter`: from where forward first needs a parameter to where it needs the next one, in that order.
    """

    by_module: dict[str, int]
    by_parameter: dict[str, float]


@cache
def forward(name: str, size: int | None = None) -> dict[str, int]:
    """Operations of forward by module, as in `Counted`. Raises InputError for an unknown model."""
    model = _model(name)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model(models.blank(name, size))
    return _by_module(model, counter)


@cache
def counted(name: str, size: int | None = None) -> Counted:
    """Operations of forward by module and by parameter. Raises InputError for an unknown model."""
    model = _model(name)
    needs: list[tuple[tuple[str, ...], int]] = []
    with torch.device("meta"):
        samples = models.blank(name, size)
        order = forward_order(model, lambda copied: copied(samples))
        with FlopCounterMode(display=False) as counter:
            order.watch(model, lambda names: needs.append((names, counter.get_total_flops())))
            model(samples)
    total = counter.get_total_flops()
    ahead = by_parameter(needs, 0, total, lambda before, after: (after - before) / len(samples))
    return Counted(_by_module(model, counter), ahead)


def _by_module(model: torch.nn.Module, counter: FlopCounterMode) -> dict[str, int]:
    root = type(model).__name__
    within = {
        place.removeprefix(root).removeprefix("."): sum(operations.values()) // 2  # of two samples
        for place, operations in counter.get_flop_counts().items()
        if place.partition(".")[0] == root
    }

    def whole(place: str, module: torch.nn.Module) -> int:
        """Operations of a module with all inside it: a list of modules isn't called itself."""
        return within[place] if place in within else inside(place, module)

    def inside(place: str, module: torch.nn.Module) -> int:
        return sum(whole(_joined(place, name), child) for name, child in module.named_children())

    by_module = {place: whole(place, module) - inside(place, module) for place, module in model.named_modules()}
    return {place: count for place, count in by_module.items() if count}


@cache
def parameters(name: str) -> int:
    """Parameters of a model; raises InputError for an unknown one."""
    return sum(parameter.numel() for parameter in _model(name).parameters())


def workload(name: str, operations_per_second: float, batch: int, size: int | None = None) -> Workload:
    """The model's layers at an even rate: forward, and twice as many operations backward, for `batch` samples.

    Gradients come in the order of modules, from the last to the first; the bias of a layer is ready with its weight.
    What a module computes itself, and not the modules inside it (the products of attention), comes before their
    gradients. A weight that several modules share is ready with the first of them. Raises InputError for an unknown
    model or a rate that makes no sense.

    Forward takes the operations from where it first needs a parameter to where it needs the next one.
    """
    if not operations_per_second > 0:
        raise InputError(f"model {name!r}: {operations_per_second} operations a second: must be above 0")
    return _workload(name, _model(name), counted(name, size), batch, operations_per_second)


def of_model(
    name: str, model: torch.nn.Module, run: Callable[[torch.nn.Module], object], forward_seconds: float
) -> Workload:
    """The workload of a model that is trained by one's own loop, whose forward `run` makes in so many seconds.

    Its layers are the parameters that are trained, and their shares those of operations. Copies of the model are run.
    """
    trained = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    needs: list[tuple[tuple[str, ...], int]] = []
    order = forward_order(model, run).among(trained)
    copied = copy.deepcopy(model)
    with torch.random.fork_rng(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        order.watch(copied, lambda names: needs.append((names, counter.get_total_flops())))
        run(copied)
    total = counter.get_total_flops()
    ahead = by_parameter(needs, 0, total, lambda before, after: float(after - before))
    statistics = sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
    whole = {key: 2 * count for key, count in _by_module(copied, counter).items()}  # it halves, for two samples
    counts = _workload(name, model, Counted(whole, ahead), 1, max(total, 1) / max(forward_seconds, 1e-9))
    return counts.model_copy(update={"statistics": statistics})


def _workload(name: str, model: torch.nn.Module, operations: Counted, batch: int, rate: float) -> Workload:
    """That of a model with so many operations a sample, `rate` of them in a second."""
    place = {key: index for index, key in enumerate(operations.by_parameter)}
    blocks = block_of(model)
    seconds_per_operation = BACKWARD * batch / rate
    layers: list[Layer] = []
    waiting = 0.0  # seconds that the next gradient takes
    for key, parameter in _backward(model):
        if parameter is None:
            waiting += seconds_per_operation * operations.by_module.get(key, 0)
            continue
        if key not in place:  # it is not trained
            continue
        layers.append(
            Layer(
                name=key,
                bytes=parameter.element_size() * parameter.numel(),
                shape=tuple(parameter.shape),
                backward_seconds=waiting,
                forward_seconds=batch * operations.by_parameter[key] / rate,
                forward_index=place[key],
                dtype=str(parameter.dtype).removeprefix("torch."),
                block=blocks.get(key),
            )
        )
        waiting = 0.0
    return Workload(
        name=name,
        forward_seconds=batch * sum(operations.by_module.values()) / rate,
        layers=tuple(layers),
        provenance={"operations_per_second": rate, "batch": batch, "source": "operations counted"},
    )


def _backward(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter | None]]:
    """The order of backward: a module's own computation (None), then what is inside it, then its parameters."""
    first = dict(model.named_parameters())  # a shared one under its first name alone

    def visit(place: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter | None]]:
        yield place, None
        for child, inside in reversed(list(module.named_children())):
            yield from visit(_joined(place, child), inside)
        for name, parameter in reversed(list(module.named_parameters(recurse=False))):
            if _joined(place, name) in first:
                yield _joined(place, name), parameter

    return visit("", model)


def _joined(place: str, child: str) -> str:
    return f"{place}.{child}" if place else child


def _model(name: str) -> torch.nn.Module:
    models.refuse_own(name, "counted")
    with torch.device("meta"):
        return models.get(name).build().train()  # auxiliary heads compute in training alone
