"""SGD with momentum: v <- mu v + scale g; w <- w - lr v (MG-WFBP Eq. 2)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, _update

KEEPS = ("momentum",)
NORM_FLOOR = 1e-6  # torch's: keeps the norm of a zero gradient from dividing


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
) -> None:
    """reads: gradient[, its norm]; writes: parameter[, momentum].

    `scale` is 1/N after a sum over N ranks (the paper's Algorithm 2 leaves it out, its Eq. 2 has it). With `clip`
    scale * g is shrunk to that norm if it is longer, as torch's `clip_grad_norm_` does; the norm is that of g.
    """
    gradient, parameter = reads[0], writes[0]
    if clip:
        scale = scale * min(1.0, clip / (scale * float(reads[1][0]) + NORM_FLOOR))
    if momentum:
        velocity = writes[1]
        velocity *= momentum
        velocity += gradient * scale
        parameter -= velocity * lr
    else:
        parameter -= gradient * (lr * scale)


refuse, follow = _update.refuse, _update.follow


def moved(form: Form) -> float:
    """Reads gradient, parameter and momentum, writes the last two."""
    return form.reads[0].bytes + 2 * sum(each.bytes for each in form.writes)
