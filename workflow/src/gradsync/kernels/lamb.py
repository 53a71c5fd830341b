"""LAMB: Adam's step, of each layer as long as its parameters (You et al., ICLR 2020, Algorithm 2).

With phi the identity, as the paper's experiments have it. The ratios come from `lamb_ratios`: it computes the step too,
and leaves nothing else. So a parameter moves 11 numbers, where a step that is kept between would move 12, and take
memory for another gradient.
"""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _layers, _moments
from gradsync.kernels.lamb_ratios import described, direction

KEEPS = ("momentum",)


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    turn: int = 0,
) -> None:
    """reads: of each tensor gradient and ratio; writes: of each parameter and two moments.

    w <- w - lr ratio u, u = m' / (sqrt(v') + eps) + decay w. `turn` counts the updates before this one.
    """
    for gradient, ratio, (parameter, first, second) in _layers.groups(reads, writes):
        step, first[:], second[:] = direction(
            *(gradient * scale, parameter, first, second),
            **{"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay},
            turn=turn,
        )
        parameter -= step * (lr * float(ratio[0]))


def refuse(form: Form) -> None:
    """The ratio of each layer; its own gradients, parameters and moments."""
    _layers.refuse(form, moments=_moments.KEPT)
    _moments.refuse_eps(form, form.writes[0].dtype)


def follow(track: Track) -> None:
    """New versions of the parameters and of both moments, if the ratios are those of this very step."""
    _layers.follow(track, moments=_moments.KEPT, described=described)


moved = _layers.moved
