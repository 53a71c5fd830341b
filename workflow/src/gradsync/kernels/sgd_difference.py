"""What SGD adds to parameters that workers share in memory: d = -lr g (Hogwild, Recht et al., NIPS 2011)."""

from __future__ import annotations

from gradsync.kernels import SMALLEST_SCALE, Array, Form, Track, whole_passes
from gradsync.plan.content import GRADIENT, Part


def compute(reads: list[Array], writes: list[Array], *, lr: float) -> None:
    """reads: gradient; writes: the difference."""
    writes[0][:] = reads[0] * -lr


def refuse(form: Form) -> None:
    """Equal ranges; a rate that is not 0."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes)
    if form.argument("lr") < SMALLEST_SCALE:
        form.fail("needs a learning rate above 0")


def follow(track: Track) -> None:
    """The gradient, of another weight."""
    weight = -track.op.arguments["lr"]
    new = []
    for low, high, content in track.read(0):
        if content.kind != GRADIENT:
            track.fail(f"takes gradients and finds {content.kind}")
        new.append(Part(low, high, content._replace(key=content.key.scaled(weight))))
    track.put(0, new)


moved = whole_passes
