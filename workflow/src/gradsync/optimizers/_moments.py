"""What Adam and its relatives have in common: settings, and two moments kept of every gradient."""

from gradsync.optimizers import Kept, Optimizer


def of_moments(
    name: str, of_torch: str, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> Optimizer:
    """`name` is that of the optimizer, `of_torch` of torch's class; a decay of 0 is left out."""
    decay = {"weight_decay": weight_decay} if weight_decay else {}
    return Optimizer(
        name,
        {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, **decay},
        (of_torch, {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}),
        (Kept("first_moment"), Kept("second_moment")),
    )
