"""Adam (Kingma and Ba, ICLR 2015, Algorithm 1), as torch.optim.Adam; weight decay is added to the gradient."""

from __future__ import annotations

from gradsync.kernels import Array, _moments, _update

KEEPS = ("momentum",)


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    turn: int = 0,
) -> None:
    """reads: gradient[, its norm]; writes: parameter, first moment, second moment.

    `scale` and `clip` are those of `sgd`; `turn` counts the updates before this one.
    """
    gradient = reads[0] * _update.shrunk(reads, scale, clip)
    if weight_decay:
        gradient = gradient + writes[0] * weight_decay
    _moments.step(gradient, writes, lr=lr, beta1=beta1, beta2=beta2, eps=eps, turn=turn)


refuse, follow, moved = _moments.refuse, _moments.follow, _update.moved
