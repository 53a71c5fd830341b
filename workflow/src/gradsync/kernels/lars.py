"""LARS: each layer's rate follows from the norms of its parameters and gradients (cloud paper, Eq. 11).

Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, Algorithm 1. The ratios of the
rates to lr come from `lars_ratios`.
"""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _layers
from gradsync.kernels.lars_ratios import described

KEEPS = ("momentum",)
OF_RATIO = 3  # the operation, its parameters and gradients: its momentum doesn't matter


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float,
) -> None:
    """reads: of each tensor gradient and ratio; writes: of each parameter[, momentum].

    v <- mu v + rate (g + decay w), w <- w - v, g = scale * gradient, rate = lr * ratio.
    """
    for gradient, ratio, (parameter, *kept) in _layers.groups(reads, writes):
        step = (gradient * scale + parameter * weight_decay) * (lr * float(ratio[0]))
        if kept:
            kept[0] *= momentum
            kept[0] += step
            step = kept[0]
        parameter -= step


def refuse(form: Form) -> None:
    """The ratio of each layer; its own gradients and parameters."""
    _layers.refuse(form, moments=int(bool(form.argument("momentum"))))


def follow(track: Track) -> None:
    """A new version of the parameters, and of their momentum, if the ratios are those of what is there."""
    moments = int(bool(track.op.arguments.get("momentum")))
    _layers.follow(track, moments=moments, described=lambda *held: described(*held[:OF_RATIO]))


moved = _layers.moved
