"""The mean of the parameters of all workers, which each of them goes on with (local SGD: Stich, ICLR 2019)."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _mean
from gradsync.plan.content import PARAMETER, Content, Part, Parts


def compute(reads: list[Array], writes: list[Array], *, terms: float) -> None:
    """reads: the sum of the parameters of so many `terms`; writes: parameter."""
    writes[0][:] = reads[0] / terms


def refuse(form: Form) -> None:
    """Equal ranges; a whole number of terms."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes)
    _mean.refuse_terms(form)


def follow(track: Track) -> None:
    """A new version of the parameters, the same on all ranks."""
    new: Parts = []
    for low, high, summed in track.read(0):
        track.synchronised(low, high, summed, track.op.arguments["terms"])
        version = track.version(track.op.kernel, summed.key)
        track.averaged(version, summed)
        new.append(Part(low, high, Content(PARAMETER, version, summed.shift)))
    track.put(0, new)


def moved(form: Form) -> float:
    """Reads the sum, writes the parameters."""
    return form.reads[0].bytes + form.writes[0].bytes
