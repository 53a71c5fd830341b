"""SGD with momentum and weight decay, as torch.optim.SGD without Nesterov (MG-WFBP Eq. 2: plain SGD)."""

from gradsync.optimizers import Kept, Optimizer


def optimizer(*, lr: float = 0.01, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimizer:
    """Without momentum nothing is kept. What is 0 is left out, but the momentum, which every plan tells."""
    decay = {"weight_decay": weight_decay} if weight_decay else {}
    return Optimizer(
        "sgd",
        {"lr": lr, "momentum": momentum, **decay},
        ("SGD", {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}),
        (Kept("momentum"),) if momentum else (),
    )
