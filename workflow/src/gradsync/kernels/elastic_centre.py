"""The centre's half of an elastic exchange: c <- c + lr rho (w - c) (EASGD, SC17 paper Eq. 2)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track
from gradsync.plan.content import CENTRE, PARAMETER, Part, Parts, together


def compute(reads: list[Array], writes: list[Array], *, lr: float, rho: float) -> None:
    """reads: one worker's parameter; writes: centre."""
    writes[0] += (reads[0] - writes[0]) * (lr * rho)


def refuse(form: Form) -> None:
    """Equal ranges."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes)


def follow(track: Track) -> None:
    """A new version of the centre."""
    new: Parts = []
    for low, high, (worker, centre) in together([track.read(0), track.held(0)]):
        if (worker.kind, centre.kind) != (PARAMETER, CENTRE) or worker.shift != centre.shift:
            track.fail(f"pulls the centre to parameters, element by element, and finds {worker.kind}")
        origin = low + (centre.shift or 0)
        track.exchanged("centre", origin, origin + high - low, worker, centre)
        rates = tuple(sorted(track.op.arguments.items()))
        version = track.version(track.op.kernel, rates, worker.key, centre.key)
        track.follows(version, centre, worker)
        new.append(Part(low, high, centre._replace(key=version)))
    track.put(0, new)


def moved(form: Form) -> float:
    """Reads both, writes the centre."""
    return form.reads[0].bytes + 2 * form.writes[0].bytes
