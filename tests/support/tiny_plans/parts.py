"""What tiny plans are made of: sizes, first parameters, gradients, passes; buffers in float64."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from gradsync.plan import KEYED, Buffer, Need, Plan, Ready, Ref, Role, Tensor

LR = 0.125
RHO = 0.5
TRUST, DECAY = 0.25, 0.5
NETWORK = "network"
SIZES = (5, 3, 4, 1)


def start(elements: int) -> np.ndarray:
    """First parameters."""
    return np.linspace(-1.0, 2.0, elements)


def pull(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    """A gradient that depends on the rank, the turn and the parameters."""
    target = np.random.default_rng((rank, turn)).normal(size=len(parameter))
    return parameter * (rank + 1) / 4 - target


def fixed_pull(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    """A gradient that does not depend on the parameters: sums of it come out equal in any order."""
    return pull(rank, turn, np.zeros_like(parameter))


def layout(sizes: Sequence[int]) -> tuple[Tensor, ...]:
    stops = list(accumulate(sizes))
    return tuple(
        Tensor(f"layer{len(sizes) - i}", stop - size, stop)
        for i, (size, stop) in enumerate(zip(sizes, stops, strict=True))
    )


def place(buffer: str, tensor: Tensor) -> Ref:
    return Ref(buffer, tensor.start, tensor.stop)


def passes(tensors: Sequence[Tensor], after_previous: tuple[str, ...] = ()) -> list[Need | Ready]:
    """Forward, then backward tensor by tensor."""
    parameter = Ref("parameter", 0, tensors[-1].stop)
    return [
        Need(name="forward", reads=(parameter,), after_previous=after_previous),
        *(
            Ready(
                name=f"ready:{tensor.name}",
                tensor=tensor.name,
                reads=(place("parameter", tensor),),
                writes=(place("gradient", tensor),),
            )
            for tensor in tensors
        ),
    ]


def plan_of(
    name: str,
    tensors: tuple[Tensor, ...],
    roles: Sequence[Role],
    buffers: Sequence[Buffer] = (),
    more: Sequence[str] = (),
) -> Plan:
    """`more` names further buffers that are as long as the gradient; those that have the name of a role have it."""
    elements = tensors[-1].stop
    keyed = tuple(
        Buffer(name, elements, "float64", role=name if name in KEYED else "scratch")
        for name in ("gradient", "parameter", *more)
    )
    ranks = sum(len(role.ranks) for role in roles)
    return Plan(name=name, ranks=ranks, tensors=tensors, buffers=(*keyed, *buffers), roles=tuple(roles))
