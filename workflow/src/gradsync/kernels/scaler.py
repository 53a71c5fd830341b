"""The loss scale after a turn whose updates are parts (torch's GradScaler).

The updates (`_unscaled.py`) are skipped together if the norm of all gradients is not finite. Once all of them have read
the loss scale, it moves by the same norm.
"""

from __future__ import annotations

from gradsync.kernels import FLOATS, Array, Form, Track, _loss_scale, whole_passes
from gradsync.plan.content import Part

KEEPS = ("scaler",)


def compute(reads: list[Array], writes: list[Array], *, growth_interval: float = 2000.0) -> None:
    """reads: norm of the gradients under their loss scale; writes: scaler.

    A norm that is not finite halves the loss scale, `growth_interval` finite ones in a row double it.
    """
    _loss_scale.move(writes[0], _loss_scale.finite(reads[0]), growth_interval)


def refuse(form: Form) -> None:
    """A norm, and the scaler."""
    form.counts(1, 1)
    form.alike(form.reads[0], types=FLOATS)
    form.long(form.reads[0], 1)
    _loss_scale.refuse(form, form.writes[0])


def follow(track: Track) -> None:
    """A version of the scaler that depends on the one before, and on the gradients."""
    norm, scaler = track.read(0)[0].content, track.held(0)[0].content
    _loss_scale.decided(track, 0, scaler)
    version = track.version("scaler", scaler.key, norm)
    track.put(0, [Part(0, _loss_scale.ELEMENTS, scaler._replace(key=version))])


moved = whole_passes
