"""SGD with momentum: v <- mu v + scale g; w <- w - lr v (MG-WFBP Eq. 2); with weight decay as torch.optim.SGD."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _update

KEEPS = ("momentum",)


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
) -> None:
    """reads: gradient[, its norm]; writes: parameter[, momentum].

    `scale` is 1/N after a sum over N ranks (the paper's Algorithm 2 leaves it out, its Eq. 2 has it). With `clip`
    scale * g is shrunk to that norm if it is longer, as torch's `clip_grad_norm_` does; the norm is that of g.
    `weight_decay` of the parameters is added to what that leaves.
    """
    gradient, parameter = reads[0], writes[0]
    scale = _update.shrunk(reads, scale, clip)
    if weight_decay:
        gradient, scale = gradient * scale + parameter * weight_decay, 1.0
    if momentum:
        velocity = writes[1]
        velocity *= momentum
        velocity += gradient * scale
        parameter -= velocity * lr
    else:
        parameter -= gradient * (lr * scale)


def refuse(form: Form) -> None:
    """gradient[, norm] -> parameter[, momentum]."""
    _update.refuse(form, moments=int(bool(form.argument("momentum"))))


def follow(track: Track) -> None:
    """A new version of the parameters, and of their momentum."""
    _update.follow(track, moments=int(bool(track.op.arguments.get("momentum"))))


moved = _update.moved
