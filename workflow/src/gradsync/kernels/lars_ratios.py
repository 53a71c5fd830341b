"""The ratios that LARS's rates are made of: trust |w| / (|g| + decay |w|) of each tensor (cloud paper, Eq. 11)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _layers
from gradsync.kernels.norm import elements, length
from gradsync.plan.content import Parts

DEALT = 2  # operands of each tensor: its parameters, its gradient
SHARED = ("weight_decay", "scale")  # arguments that the update must have, too
SMALLEST = 1e-12  # keeps a ratio finite


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    trust: float,
    weight_decay: float = 0.0,
    eps: float = SMALLEST,
    scale: float,
) -> None:
    """reads: of each tensor parameter and gradient; writes[0]: of each its ratio, from norms summed in that type.

    trust |w| / (|g| + decay |w| + eps), g = scale * gradient. A tensor whose parameters or gradients are all 0 has 1,
    or parameters that begin at 0 would stay there.
    """
    (ratios,) = writes
    for number in range(len(ratios)):
        size, steepness = (length(array, ratios.dtype) for array in reads[DEALT * number : DEALT * (number + 1)])
        steepness *= scale
        if size > 0 and steepness > 0:
            ratios[number] = trust * size / (steepness + weight_decay * size + eps)
        else:
            ratios[number] = 1


def refuse(form: Form) -> None:
    """A ratio for each tensor; its own parameters and gradients."""
    _layers.refuse_ratios(form, DEALT)


def follow(track: Track) -> None:
    """Ratios of just these versions of parameters, and of just these gradients."""
    _layers.follow_ratios(track, DEALT, described)


def described(track: Track, parameter: Parts, gradient: Parts) -> object:
    """What the ratio of a tensor is of, for the operation that computes or takes it."""
    return "lars", elements(parameter), elements(gradient), _layers.shared(track, SHARED)


moved = _layers.moved_by_ratios
