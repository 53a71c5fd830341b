"""The worker's half of an elastic exchange: w <- w - lr (g + rho (w - c)) (EASGD, SC17 paper Eq. 1)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track
from gradsync.plan.content import CENTRE, PARAMETER, Part, Parts


def compute(reads: list[Array], writes: list[Array], *, lr: float, rho: float) -> None:
    """reads: gradient, centre; writes: parameter."""
    gradient, centre = reads
    (parameter,) = writes
    parameter -= (gradient + (parameter - centre) * rho) * lr


def refuse(form: Form) -> None:
    """Equal ranges."""
    form.counts(2, 1)
    form.alike(*form.reads, *form.writes)


def follow(track: Track) -> None:
    """A new version of the parameters; both sides must have seen the same pair, before either changed it."""
    new: Parts = []
    for low, high, summed, (worker, centre) in track.gradients(track.read(0), track.held(0), track.read(1)):
        if (worker.kind, centre.kind) != (PARAMETER, CENTRE) or worker.shift != centre.shift:
            track.fail(f"pulls parameters to the centre, element by element, and finds {worker.kind} and {centre.kind}")
        origin = low + (worker.shift or 0)
        track.exchanged("worker", origin, origin + high - low, worker, centre)
        rates = tuple(sorted(track.op.arguments.items()))
        version = track.version(track.op.kernel, rates, summed, worker.key, centre.key)
        track.applied(low, high, origin, summed, worker, version)
        track.follows(version, centre)
        new.append(Part(low, high, worker._replace(key=version)))
    track.put(0, new)


def moved(form: Form) -> float:
    """Reads gradient, centre and parameter, writes the parameter."""
    return sum(each.bytes for each in form.reads) + 2 * form.writes[0].bytes
