"""The centre's half of an elastic exchange: c <- c + lr rho sum (w - c) (EASGD, SC17 paper Eq. 2).

Of one worker, as an asynchronous master pulls it, or of several at once, whose sum has come.
"""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _mean
from gradsync.plan.content import CENTRE, Part, Parts, terms, together


def compute(reads: list[Array], writes: list[Array], *, lr: float, rho: float, terms: float = 1.0) -> None:
    """reads: one worker's parameter, or the sum of so many `terms`; writes: centre.

    The centre may be a term, too, which pulls it by nothing.
    """
    centre = writes[0]
    centre += (reads[0] - (centre if terms == 1 else centre * terms)) * (lr * rho)


def refuse(form: Form) -> None:
    """Equal ranges; a whole number of terms."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes)
    _mean.refuse_terms(form)


def follow(track: Track) -> None:
    """A new version of the centre."""
    new: Parts = []
    for low, high, (summed, centre) in together([track.read(0), track.held(0)]):
        workers, centres = terms(summed)
        if not workers or centre.kind != CENTRE or summed.shift != centre.shift:
            track.fail(f"pulls the centre to parameters, element by element, and finds {summed.kind}")
        expected = track.op.arguments.get("terms", 1)
        if (count := len(workers) + len(centres)) != expected:
            track.fail(f"pulls the centre to the sum of {expected:g}, and finds one of {count}")
        if any(key != centre.key for key in centres):
            track.fail("pulls the centre to a sum that another version of the centre is in")
        origin = low + (centre.shift or 0)
        track.exchanged("centre", origin, origin + high - low, workers, centre.key)
        rates = tuple(sorted(track.op.arguments.items()))
        version = track.version(track.op.kernel, rates, summed.key, centre.key)
        track.follows(version, centre, summed)
        new.append(Part(low, high, centre._replace(key=version)))
    track.put(0, new)


def moved(form: Form) -> float:
    """Reads both, writes the centre."""
    return form.reads[0].bytes + 2 * form.writes[0].bytes
