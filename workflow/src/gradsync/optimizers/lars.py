"""LARS: SGD with momentum, each tensor at a rate of its own (You, Gitman and Ginsburg, 2017, Algorithm 1).

A tensor's rate is lr * trust |w| / (|g| + decay |w| + eps); the cloud paper has it as Eq. 11. The momentum is one of
steps, which have the rate in them, as in Algorithm 1: under a schedule that is not one of torch.optim.SGD.

Every gradient tensor is a layer here, biases and batch norm's parameters too, which decay like the others: that is how
the cloud paper counts 161 layers of ResNet-50. A tensor whose parameters or gradients are all 0 has the plain rate.
"""

from gradsync.optimizers import Kept, Optimizer, Ratios


def optimizer(
    *, lr: float = 0.01, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = 0.001, eps: float = 1e-8
) -> Optimizer:
    """The paper's momentum and trust; without momentum nothing is kept."""
    decay = {"weight_decay": weight_decay}
    of_step, of_ratio = {"lr": lr, "momentum": momentum, **decay}, {"trust": trust, "eps": eps, **decay}
    return Optimizer(
        "lars",
        of_step,
        ("LARS", {**of_step, **of_ratio}),
        (Kept("momentum"),) if momentum else (),
        Ratios("lars_ratios", ("parameter", "gradient"), of_ratio),
    )
