"""The norms that LAMB's rates are made of: of each layer's parameters, and of the direction in which they will move."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _layers, _moments, arguments, whole_passes
from gradsync.kernels.norm import elements, refuse_type
from gradsync.plan.content import NORM, Content, Part, Parts

READS = 4  # operands of each tensor: its parameters, its gradient, both moments
COUNTS = True
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
    """reads: of each tensor parameter, gradient and two moments; writes[0]: of each |w|, |u|, summed in its type.

    u = m' / (sqrt(v') + eps) + decay w, with the moments m and v as the update will leave them.
    """
    rates = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    for number in range(len(reads) // READS):
        parameter, gradient, first, second = reads[READS * number : READS * (number + 1)]
        step, _, _ = direction(gradient * scale, parameter, first, second, **rates, turn=turn)
        for place, array in enumerate((parameter, step)):
            wide = array.astype(writes[0].dtype, copy=False)
            writes[0][_layers.NORMS * number + place] = (wide * wide).sum() ** 0.5


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
    """Two norms for each tensor; its own parameters, gradients and moments."""
    tensors = max(1, len(form.reads) // READS)
    form.counts(READS * tensors, 1)
    _layers.refuse_parts(form, form.reads[::READS])
    for number in range(tensors):
        form.alike(*form.reads[READS * number : READS * (number + 1)])
    form.long(form.writes[0], _layers.NORMS * tensors)
    refuse_type(form)
    _moments.refuse_eps(form, form.reads[0].dtype)
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")


def follow(track: Track) -> None:
    """Norms of just these versions of parameters, and of the step from just these gradients and moments."""
    norms: list[Part] = []
    for number in range(len(track.op.reads) // READS):
        parameter, gradient, *moments = (track.read(READS * number + i) for i in range(READS))
        for key in norms_of(track, parameter, gradient, *moments):
            norms.append(Part(len(norms), len(norms) + 1, Content(NORM, key)))
    track.put(0, norms)


def norms_of(track: Track, parameter: Parts, gradient: Parts, *moments: Parts) -> list[object]:
    """What the norms of a layer are of, for the operation that computes or takes them."""
    known = arguments(track.op.kernel)
    values = tuple(track.op.arguments.get(name, known[name].default) for name in SHARED)
    step = ("direction", tuple(map(elements, (parameter, gradient, *moments))), values)
    return [elements(parameter), step]


moved = whole_passes
