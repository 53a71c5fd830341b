"""Adam (Kingma and Ba, ICLR 2015, Algorithm 1), as torch.optim.Adam; weight decay is added to the gradient."""

from gradsync.optimizers import Optimizer
from gradsync.optimizers._moments import of_moments


def optimizer(
    *, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0
) -> Optimizer:
    """The paper's defaults."""
    return of_moments("adam", "Adam", lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
