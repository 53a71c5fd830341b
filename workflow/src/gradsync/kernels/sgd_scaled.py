"""SGD of gradients that were multiplied by a loss scale; a step that is not finite is skipped (torch's GradScaler)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _loss_scale, _update, sgd
from gradsync.plan.content import SCALER, Part

KEEPS = ("momentum", "scaler")


def compute(
    reads: list[Array],
    writes: list[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    growth_interval: float = 2000.0,
) -> None:
    """reads: gradient[, its norm]; writes: parameter[, momentum], scaler. As torch's GradScaler: a skipped step halves
    the loss scale, `growth_interval` good ones double it. All ranks hold the same sum: all skip.

    `clip` is of the gradient without the loss scale; the norm that is read is of the one with it.
    """
    gradient, scaler = reads[0], writes[-1]
    good = float(abs(gradient).max()) < float("inf")  # false for NaN
    if good:
        rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        sgd.compute(reads, writes[:-1], **rates, scale=scale / float(scaler[0]), clip=clip)
    _loss_scale.move(scaler, good, growth_interval)


def refuse(form: Form) -> None:
    """As SGD; and the scaler. All of the gradient, since every rank must skip the same steps."""
    _update.refuse(form, moments=int(bool(form.argument("momentum"))), extra=1)
    _loss_scale.refuse(form, form.writes[-1])
    if form.reads[0].ref[1:] != (0, form.plan.elements, ()):
        form.fail("updates all parameters at once")


def follow(track: Track) -> None:
    """As SGD; what comes out depends on the scaler, and the scaler on the gradients."""
    number = len(track.op.writes) - 1
    (scaler,) = (part.content for part in track.held(number))
    if scaler.kind != SCALER:
        track.fail(f"needs the scaler and finds {scaler.kind}")
    version = track.version("scaler", scaler.key, tuple(track.read(0)))
    _update.follow(track, scaler, moments=int(bool(track.op.arguments.get("momentum"))))
    track.put(number, [Part(0, _loss_scale.ELEMENTS, scaler._replace(key=version))])


def moved(form: Form) -> float:
    """As SGD, after a look at the gradient."""
    return form.reads[0].bytes + sgd.moved(form)
