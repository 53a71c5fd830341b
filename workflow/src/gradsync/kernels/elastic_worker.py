"""The worker's half of an elastic exchange (EASGD, SC17 paper Eq. 1; with momentum MEASGD, Eq. 5 and 6).

w <- w - lr (g + rho (w - c));  with momentum v <- mu v + g, w <- w - lr (v + rho (w - c)).

Differs from the paper: its V is -lr v, so that a rate that changes holds for the whole of v, as with torch.optim.SGD.
"""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track
from gradsync.plan.content import CENTRE, MOMENTUM, PARAMETER, Part, Parts

KEEPS = ("momentum",)


def compute(reads: list[Array], writes: list[Array], *, lr: float, rho: float, momentum: float = 0.0) -> None:
    """reads: gradient, centre; writes: parameter[, momentum]."""
    gradient, centre = reads
    parameter = writes[0]
    if momentum:
        velocity = writes[1]
        velocity *= momentum
        velocity += gradient
        gradient = velocity
    parameter -= (gradient + (parameter - centre) * rho) * lr


def refuse(form: Form) -> None:
    """Equal ranges."""
    form.counts(2, 1 + bool(form.argument("momentum")))
    form.alike(*form.reads, *form.writes)


def follow(track: Track) -> None:
    """A new version of the parameters; both sides must have seen the same pair, before either changed it."""
    new: list[Parts] = [[] for _ in track.op.writes]
    state = [track.held(number) for number in range(len(new))]
    for low, high, summed, (worker, *kept, centre) in track.gradients(track.read(0), *state, track.read(1)):
        if (worker.kind, centre.kind) != (PARAMETER, CENTRE) or worker.shift != centre.shift:
            track.fail(f"pulls parameters to the centre, element by element, and finds {worker.kind} and {centre.kind}")
        if any(velocity != worker._replace(kind=MOMENTUM) for velocity in kept):
            track.fail("takes the momentum of other parameters")
        origin = low + (worker.shift or 0)
        track.exchanged("worker", origin, origin + high - low, (worker.key,), centre.key)
        rates = tuple(sorted(track.op.arguments.items()))
        version = track.version(track.op.kernel, rates, summed, worker.key, centre.key)
        track.applied(low, high, origin, summed, worker, version)
        track.follows(version, centre)
        for parts, content in zip(new, (worker, *kept), strict=True):
            parts.append(Part(low, high, content._replace(key=version)))
    for number, parts in enumerate(new):
        track.put(number, parts)


def moved(form: Form) -> float:
    """Reads gradient, centre, parameter and momentum, writes the last two."""
    return sum(each.bytes for each in form.reads) + 2 * sum(each.bytes for each in form.writes)
