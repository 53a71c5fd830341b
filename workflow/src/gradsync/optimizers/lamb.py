"""LAMB: Adam's step with its decay, of each tensor as long as its parameters (You et al., ICLR 2020, Algorithm 2).

w <- w - lr |w| / |u| u, u = m' / (sqrt(v') + eps) + decay w. Every gradient tensor is a layer, biases and batch norm's
parameters too, which decay like the others. A tensor whose parameters are all 0 moves by lr u.
"""

from gradsync.optimizers import Kept, Optimizer, Ratios


def optimizer(
    *, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-6, weight_decay: float = 0.0
) -> Optimizer:
    """The paper's defaults, but for the decay, which it tunes."""
    of_step = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    moments = (Kept("first_moment"), Kept("second_moment"))
    return Optimizer(
        "lamb",
        {"lr": lr, **of_step},
        ("LAMB", {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}),
        moments,
        Ratios("lamb_ratios", ("parameter", "gradient", *(each.name for each in moments)), of_step),
    )
