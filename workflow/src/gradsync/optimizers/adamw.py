"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, Algorithm 2), as torch.optim.AdamW."""

from gradsync.optimizers import Optimizer
from gradsync.optimizers._moments import of_moments


def optimizer(
    *, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0
) -> Optimizer:
    """The paper's defaults."""
    return of_moments("adamw", "AdamW", lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
