"""Updates of parts of the parameters, by gradients that were multiplied by a loss scale: all of a turn, or none.

Every update that can clip has a namesake `NAME_unscaled`, which this module makes. It reads the norm of all gradients,
which is the same on all ranks: if that is not finite, it writes nothing, and so does every other update of the turn.
`scaler` moves the loss scale afterwards.

Differs from torch's GradScaler, which looks at each element: a norm in float32 is not finite either if an element is
beyond 1.8e19, the root of what float32 holds.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from gradsync.kernels import TURN, UNSCALED, Array, Form, Track, _loss_scale, _update, adam, adamw, sgd

OPERANDS = 3  # gradient, norm, scaler
UPDATES = {"sgd": sgd, "adam": adam, "adamw": adamw}


class Unscaled:
    """The kernel of one update, with what `kernels/__init__.py` asks of a module."""

    def __init__(self, update: Any):
        self.update, self.compute = update, guarded(update.compute)
        self.KEEPS, self.moved = update.KEEPS, update.moved

    def refuse(self, form: Form) -> None:
        """gradient, norm, scaler -> what the update itself writes."""
        if len(form.reads) != OPERANDS:
            form.fail(f"reads gradient, norm and scaler, not {len(form.reads)} range(s)")
        taken = form.op.reads[: 2 if form.argument("clip") else 1]
        self.update.refuse(Form(form.plan, dataclasses.replace(form.op, reads=taken)))
        form.long(form.reads[1], 1)
        _loss_scale.refuse(form, form.reads[2])

    def follow(self, track: Track) -> None:
        """As the update itself; what comes out depends on norm and scaler."""
        scaler = track.read(2)[0].content
        _loss_scale.decided(track, 1, scaler)
        _update.follow(track, scaler, moments=len(track.op.writes) - 1, normed=True)


def guarded(update: Callable[..., None]) -> Callable[..., None]:
    """An update that takes the loss scale out of gradients, and does nothing unless their norm is finite."""

    @functools.wraps(update)
    def compute(reads: list[Array], writes: list[Array], *, scale: float = 1.0, **how: Any) -> None:
        """reads: gradient, norm, scaler; writes: those of the update. Steps that were skipped are no turns."""
        gradient, norm, scaler = reads
        if not _loss_scale.finite(norm):
            return
        if TURN in how:
            how[TURN] -= int(scaler[2])
        update([gradient, norm], writes, scale=scale / float(scaler[0]), **how)

    return compute


def kernels() -> dict[str, Any]:
    """Name -> the kernel, of every update that can clip."""
    return {f"{name}{UNSCALED}": Unscaled(update) for name, update in UPDATES.items()}
