"""The ratios that LAMB's rates are made of: of each tensor's parameters to the direction in which they will move."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _layers, _moments
from gradsync.kernels.norm import elements, length
from gradsync.plan.content import Parts

DEALT = 4  # operands of each tensor: its parameters, its gradient, both moments
SHARED = ("beta1", "beta2", "eps", "weight_decay", "scale")  # arguments that the update must have, too


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    turn: int = 0,
) -> None:
    """reads: of each tensor parameter, gradient and two moments; writes[0]: of each |w| / |u|, norms in that type.

    u = m' / (sqrt(v') + eps) + decay w, with the moments m and v as the update will leave them. A tensor of which
    either norm is 0 has 1.
    """
    (ratios,) = writes
    rates = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    for number in range(len(ratios)):
        parameter, gradient, first, second = reads[DEALT * number : DEALT * (number + 1)]
        step, _, _ = direction(gradient * scale, parameter, first, second, **rates, turn=turn)
        size, moved_by = length(parameter, ratios.dtype), length(step, ratios.dtype)
        ratios[number] = size / moved_by if size > 0 and moved_by > 0 else 1


def direction(
    gradient: Array,
    parameter: Array,
    first: Array,
    second: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    turn: int,
) -> tuple[Array, Array, Array]:
    """(u, the first moment, the second) after a step that counts `turn` steps before it; nothing is changed."""
    # m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    first = first * beta1 + gradient * (1 - beta1)
    second = second * beta2 + gradient * gradient * (1 - beta2)
    size, root = _moments.rates(1.0, beta1, beta2, turn)
    return first / (second**0.5 * (1 / root) + eps) * size + parameter * weight_decay, first, second


def refuse(form: Form) -> None:
    """A ratio for each tensor; its own parameters, gradients and moments."""
    _layers.refuse_ratios(form, DEALT)
    _moments.refuse_eps(form, form.reads[0].dtype)


def follow(track: Track) -> None:
    """Ratios of just these versions of parameters to the step from just these gradients and moments."""
    _layers.follow_ratios(track, DEALT, described)


def described(track: Track, parameter: Parts, gradient: Parts, *moments: Parts) -> object:
    """What the ratio of a tensor is of, for the operation that computes or takes it: in which step, too."""
    return "lamb", *map(elements, (parameter, gradient, *moments)), _layers.shared(track, SHARED), track.times


moved = _layers.moved_by_ratios
