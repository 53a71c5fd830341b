"""One step of Adam's moments, with the bias of their beginning at 0 taken out (Kingma and Ba, Algorithm 1)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _update

KEPT = 2  # moments
LEAST_EPS = {"float16": 6e-8}  # below, it is 0, and divides what has no gradient; of the other types RANGES has it


def step(
    gradient: Array,
    state: list[Array],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    turn: int,
) -> None:
    """`state`: parameter, first and second moment, changed in place; `turn` counts the steps before this one."""
    parameter, first, second = state
    # m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
    first *= beta1
    first += gradient * (1 - beta1)
    second *= beta2
    second += gradient * gradient * (1 - beta2)
    # w <- w - lr m' / (sqrt(v') + eps), m' = m / (1 - b1^t), v' = v / (1 - b2^t)
    size, root = rates(lr, beta1, beta2, turn)
    parameter -= first / (second**0.5 * (1 / root) + eps) * size


def rates(lr: float, beta1: float, beta2: float, turn: int) -> tuple[float, float]:
    """lr / (1 - b1^t) and sqrt(1 - b2^t), of step t = turn + 1."""
    return lr / (1 - beta1 ** (turn + 1)), (1 - beta2 ** (turn + 1)) ** 0.5


def refuse(form: Form) -> None:
    """gradient[, norm] -> parameter, first moment, second moment."""
    _update.refuse(form, moments=KEPT)
    refuse_eps(form, form.writes[0].dtype)


def refuse_eps(form: Form, dtype: str) -> None:
    """Raises InputError for an eps that is 0 in the type of the parameters."""
    eps = form.argument("eps")
    if eps < (least := LEAST_EPS.get(dtype, 0.0)):
        form.fail(f"needs eps of at least {least:g}, not {eps:g}, which is 0 in {dtype}")


def follow(track: Track) -> None:
    """New versions of the parameters and of both moments."""
    _update.follow(track, moments=KEPT)
