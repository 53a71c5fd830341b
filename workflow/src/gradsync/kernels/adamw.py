"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, Algorithm 2), as torch.optim.AdamW."""

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
    """As `adam`, but parameters decay by lr * weight_decay before the step, whatever the moments.

    Differs from the paper: its schedule multiplier also scales a decay that has no lr; here lr stands for both.
    """
    gradient = reads[0] * _update.shrunk(reads, scale, clip)
    if weight_decay:
        writes[0] *= 1 - lr * weight_decay
    _moments.step(gradient, writes, lr=lr, beta1=beta1, beta2=beta2, eps=eps, turn=turn)


refuse, follow, moved = _moments.refuse, _moments.follow, _update.moved
