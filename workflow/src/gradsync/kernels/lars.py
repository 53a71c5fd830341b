"""LARS: each layer's rate follows from the norms of its parameters and gradients (cloud paper Eq. 12)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track
from gradsync.kernels.norm import elements
from gradsync.plan.content import NORM, PARAMETER, Part, Parts

SMALLEST = 1e-12  # keeps the rate finite


def compute(reads: list[Array], writes: list[Array], *, lr: float, trust: float, decay: float, scale: float) -> None:
    """reads: gradient, norms (of parameter, of gradient); writes: parameter.

    w <- w - lr * trust |w| / (|g| + decay |w|) * (g + decay w), g = scale * gradient. A layer whose parameters or
    gradients are all 0 has the plain rate lr, or parameters that begin at 0 would stay there.
    """
    gradient, norms = reads
    (parameter,) = writes
    size, steepness = float(norms[0]), float(norms[1]) * scale
    rate = lr * trust * size / (steepness + decay * size + SMALLEST) if size > 0 and steepness > 0 else lr
    parameter -= (gradient * scale + parameter * decay) * rate


def refuse(form: Form) -> None:
    """Both norms; a layer's own gradients and parameters."""
    form.counts(2, 1)
    form.alike(form.reads[0], form.writes[0])
    form.long(form.reads[1], 2)
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")


def follow(track: Track) -> None:
    """A new version of the parameters, if the norms are those of what is there."""
    gradient, parameter = track.read(0), track.held(0)
    norms = [part.content for part in track.read(1)]
    expected = [elements(parameter), elements(gradient)]
    if [(norm.kind, norm.key) for norm in norms] != [(NORM, each) for each in expected]:
        track.fail("needs the norms of the parameters and of the gradients that it works on, of the same layer")
    new: Parts = []
    for low, high, summed, (content,) in track.gradients(gradient, parameter):
        if content.kind != PARAMETER:
            track.fail(f"updates parameters and finds {content.kind}")
        rates = tuple(sorted(track.op.arguments.items()))
        version = track.version(track.op.kernel, rates, summed, tuple(expected), content.key)
        track.applied(low, high, low + (content.shift or 0), summed, content, version)
        new.append(Part(low, high, content._replace(key=version)))
    track.put(0, new)


def moved(form: Form) -> float:
    """Reads gradient and parameter, writes the parameter."""
    return form.reads[0].bytes + 2 * form.writes[0].bytes
