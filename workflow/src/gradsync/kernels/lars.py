"""LARS: each layer's rate follows from the norms of its parameters and gradients (cloud paper, Eq. 11).

Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, Algorithm 1.
"""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _layers
from gradsync.kernels.norm import elements

KEEPS = ("momentum",)
SMALLEST = 1e-12  # keeps the rate finite


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trust: float,
    eps: float = SMALLEST,
    scale: float,
) -> None:
    """reads: of each tensor gradient, norms (of parameter, of gradient); writes: of each parameter[, momentum].

    v <- mu v + rate (g + decay w), w <- w - v, g = scale * gradient; `rate` is that of the layer.
    """
    for gradient, norms, (parameter, *kept) in _layers.groups(reads, writes):
        layers = rate(float(norms[0]), float(norms[1]) * scale, lr=lr, weight_decay=weight_decay, trust=trust, eps=eps)
        step = (gradient * scale + parameter * weight_decay) * layers
        if kept:
            kept[0] *= momentum
            kept[0] += step
            step = kept[0]
        parameter -= step


def rate(size: float, steepness: float, *, lr: float, weight_decay: float, trust: float, eps: float) -> float:
    """lr * trust |w| / (|g| + decay |w| + eps), a layer's rate, of |w| `size` and |g| `steepness`.

    A layer whose parameters or gradients are all 0 has the plain rate lr, or parameters that begin at 0 would stay
    there.
    """
    if size > 0 and steepness > 0:
        return lr * trust * _layers.ratio(size, steepness + weight_decay * size + eps)
    return lr


def refuse(form: Form) -> None:
    """Both norms of each layer; its own gradients and parameters."""
    _layers.refuse(form, moments=int(bool(form.argument("momentum"))))


def follow(track: Track) -> None:
    """A new version of the parameters, and of their momentum, if the norms are those of what is there."""
    moments = int(bool(track.op.arguments.get("momentum")))
    _layers.follow(track, moments=moments, expected=lambda gradient, state: [elements(state[0]), elements(gradient)])


moved = _layers.moved
