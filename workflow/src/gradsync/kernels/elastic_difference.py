"""What an elastic exchange adds to a centre that workers share in memory: d = lr rho (w - c) (SC17 paper Eq. 2)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, whole_passes
from gradsync.plan.content import CENTRE, DIFFERENCE, PARAMETER, Content, Part, Parts, together


def compute(reads: list[Array], writes: list[Array], *, lr: float, rho: float) -> None:
    """reads: parameter, the centre as it was read; writes: the difference."""
    parameter, centre = reads
    writes[0][:] = (parameter - centre) * (lr * rho)


def refuse(form: Form) -> None:
    """Equal ranges."""
    form.counts(2, 1)
    form.alike(*form.reads, *form.writes)


def follow(track: Track) -> None:
    """The difference of that pair."""
    new: Parts = []
    for low, high, (worker, centre) in together([track.read(0), track.read(1)]):
        if (worker.kind, centre.kind) != (PARAMETER, CENTRE) or worker.shift != centre.shift:
            track.fail(f"takes parameters and a centre, element by element, and finds {worker.kind} and {centre.kind}")
        new.append(Part(low, high, Content(DIFFERENCE, (worker.key, centre.key), worker.shift)))
    track.put(0, new)


moved = whole_passes
