"""The local kernels of the plan's vocabulary, on flat arrays.

Written once with operators that NumPy and PyTorch share, so that the oracle (NumPy, n ranks in one process) and the
executor (PyTorch) mean the same by a name; conformance tests hold both to an independent reference.
Each kernel takes its `reads`, its `writes` (mutated in place) and its named arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any


NORM_FLOOR = 1e-6  # torch's: keeps the norm of a zero gradient from dividing


def sgd(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
) -> None:
    """reads: gradient[, its norm]; writes: parameter[, momentum]. v <- mu v + scale g; w <- w - lr v (MG-WFBP Eq. 2).

    `scale` is 1/N after a sum over N ranks (the paper's Algorithm 2 leaves it out, its Eq. 2 has it). With `clip`
    scale * g is shrunk to that norm where it is longer, as torch's `clip_grad_norm_` does; the norm is that of g.
    """
    gradient, parameter = reads[0], writes[0]
    if clip:
        scale = scale * min(1.0, clip / (scale * float(reads[1][0]) + NORM_FLOOR))
    if momentum:
        velocity = writes[1]
        velocity *= momentum
        velocity += gradient * scale
        parameter -= velocity * lr
    else:
        parameter -= gradient * (lr * scale)


def sgd_scaled(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    growth_interval: float = 2000.0,
) -> None:
    """`sgd` of a gradient that was multiplied by a loss scale; a step whose gradient is not finite is skipped.

    writes: parameter[, momentum], scaler = (loss scale, good steps in a row, skipped steps). As torch's GradScaler: a
    skipped step halves the loss scale, `growth_interval` good ones double it. All ranks hold the same sum: all skip.
    `clip` is of the gradient without the loss scale; the norm that is read is of the one with it.
    """
    gradient, scaler = reads[0], writes[-1]
    if float(abs(gradient).max()) < float("inf"):  # false for NaN
        sgd(reads, writes[:-1], lr=lr, momentum=momentum, scale=scale / float(scaler[0]), clip=clip)
        scaler[1] += 1
        if scaler[1] >= growth_interval:
            scaler[0] *= 2
            scaler[1] = 0
    else:
        scaler[0] *= 0.5
        scaler[1] = 0
        scaler[2] += 1


def cast(reads: list[Array], writes: list[Array], *, scale: float = 1.0) -> None:
    """writes[0] = scale * reads[0] in the type of writes[0]: what travels may be narrower than what is computed."""
    writes[0][:] = reads[0] * scale


def add(reads: list[Array], writes: list[Array], *, scale: float = 1.0) -> None:
    """writes[0] += scale * reads[0]."""
    if scale == 1.0:
        writes[0] += reads[0]
    else:
        writes[0] += reads[0] * scale


def copy(reads: list[Array], writes: list[Array]) -> None:
    """writes[0] = reads[0]."""
    writes[0][:] = reads[0]


def fill(reads: list[Array], writes: list[Array], *, value: float = 0.0) -> None:
    """Every element of writes = value."""
    for array in writes:
        array[:] = value


def join(reads: list[Array], writes: list[Array]) -> None:
    """Nothing: the end of a collective that was lowered to transfers; carries its name and its postcondition."""


def encode_topk(reads: list[Array], writes: list[Array]) -> None:
    """reads: gradient; writes: values, indices, residual. The k = len(values) largest of gradient + residual.

    What is not sent stays in the residual: sum(sent) + residual = gradient + old residual. The gradient is left.
    """
    (gradient,) = reads
    values, indices, residual = writes
    residual += gradient
    chosen = abs(residual).argsort()[-len(values) :]
    indices[:] = chosen
    values[:] = residual[chosen]
    residual[chosen] = 0


def decode_sum(reads: list[Array], writes: list[Array]) -> None:
    """reads: values and indices of all ranks; writes: gradient = sum of the sparse messages (equal indices add up)."""
    values, indices = reads
    gradient = writes[0]
    gradient[:] = 0
    for value, index in zip(values, indices, strict=True):  # an index may come from several ranks
        gradient[int(index)] += value


def norm(reads: list[Array], writes: list[Array]) -> None:
    """writes[0][i] = Euclidean norm of reads[i] (clipping; LARS, LAMB, split over ranks by the tensor operator)."""
    for i, array in enumerate(reads):
        writes[0][i] = (array * array).sum() ** 0.5


def lars(reads: list[Array], writes: list[Array], *, lr: float, trust: float, decay: float, scale: float) -> None:
    """reads: gradient, norms (of parameter, of gradient); writes: parameter.

    w <- w - lr * trust |w| / (|g| + decay |w|) * (g + decay w), g = scale * gradient (LARS, cloud paper Eq. 12).
    """
    gradient, norms = reads
    (parameter,) = writes
    rate = lr * trust * norms[0] / (norms[1] * scale + decay * norms[0] + 1e-12)
    parameter -= (gradient * scale + parameter * decay) * rate


def elastic_worker(reads: list[Array], writes: list[Array], *, lr: float, rho: float) -> None:
    """reads: gradient, centre; writes: parameter. w <- w - lr (g + rho (w - c)) (EASGD, SC17 paper Eq. 1)."""
    gradient, centre = reads
    (parameter,) = writes
    parameter -= (gradient + (parameter - centre) * rho) * lr


def elastic_centre(reads: list[Array], writes: list[Array], *, lr: float, rho: float) -> None:
    """reads: one worker's parameter; writes: centre. c <- c + lr rho (w - c) (EASGD, SC17 paper Eq. 2)."""
    writes[0] += (reads[0] - writes[0]) * (lr * rho)


KERNELS: dict[str, Callable[..., None]] = {
    kernel.__name__: kernel
    for kernel in (
        *(sgd, sgd_scaled, cast, add, copy, fill, join, encode_topk, decode_sum, norm, lars),
        *(elastic_worker, elastic_centre),
    )
}
