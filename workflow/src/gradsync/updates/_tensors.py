"""The operations by which an update applies gradients tensor by tensor, at rates that norms of each tensor make.

The buffer `ratios` holds a ratio for each tensor, in the order of the plan's tensors.
"""

from __future__ import annotations

from typing import Any

from gradsync.errors import InputError
from gradsync.kernels.norm import wide
from gradsync.optimizers import Optimizer, Ratios
from gradsync.plan import Buffer, Local, Ref, Tensor

BUFFER = "ratios"


def by_tensor(
    optimizer: Optimizer,
    needed: Ratios,
    name: str,
    gradient: Ref,
    tensors: tuple[Tensor, ...],
    scale: float,
    **how: Any,
) -> tuple[Local, Local]:
    """The ratios of the tensors in `gradient`, which is scaled, and the step `name` by them; `how`: lane, waits.

    Raises InputError if the range is not one of whole tensors.
    """
    numbers = _whole(optimizer, name, gradient, tensors)
    parts = [Ref(gradient.buffer, tensors[i].start, tensors[i].stop) for i in numbers]
    weight = {"scale": scale}
    ratios = Local(
        name=name.replace("update", BUFFER),
        kernel=needed.kernel,
        arguments={**needed.arguments, **weight},
        reads=tuple(part._replace(buffer=buffer) for part in parts for buffer in needed.reads),
        writes=(Ref(BUFFER, numbers[0], numbers[-1] + 1),),
        **how,
    )
    written = ("parameter", *(each.name for each in optimizer.kept))
    step = Local(
        name=name,
        kernel=optimizer.name,
        arguments={**optimizer.arguments, **weight},
        reads=tuple(ref for i, part in zip(numbers, parts, strict=True) for ref in (part, Ref(BUFFER, i, i + 1))),
        writes=tuple(part._replace(buffer=buffer) for part in parts for buffer in written),
        **{**how, "after": (ratios.name,)},
    )
    return ratios, step


def _whole(optimizer: Optimizer, name: str, gradient: Ref, tensors: tuple[Tensor, ...]) -> range:
    """The numbers of the tensors in a range of gradients."""
    inside = [i for i, each in enumerate(tensors) if gradient.start < each.stop and each.start < gradient.stop]
    first, last = inside[0], inside[-1]
    if gradient.mine or (tensors[first].start, tensors[last].stop) != gradient[1:3]:
        raise InputError(
            f"optimizer {optimizer.name!r} needs the norms of whole tensors, and {name!r} has a part of one between "
            f"{tensors[first].name!r} and {tensors[last].name!r}: take update ssgd, or a schedule that cuts no tensor"
        )
    return range(first, last + 1)


def buffer_of_ratios(tensors: int, dtype: str) -> Buffer:
    """That of so many tensors, whose gradients are of that type."""
    return Buffer(BUFFER, tensors, wide(dtype))
