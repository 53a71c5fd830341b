"""The outer step of DiLoCo: Nesterov momentum on what workers have moved (Douillard et al., arXiv 2311.08105).

Algorithm 1, lines 12 and 14: d = c - sum of w / k, the mean of the workers' outer gradients; u <- mu u + d;
c <- c - lr (d + mu u), as torch.optim.SGD has Nesterov momentum. All go on with w = c.
"""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _mean
from gradsync.plan.content import CENTRE, MOMENTUM, PARAMETER, Content, Part, Parts, together

KEEPS = ("momentum",)


def compute(
    reads: list[Array], writes: list[Array], *, outer_lr: float, terms: float, outer_momentum: float = 0.0
) -> None:
    """reads: the sum of the parameters of so many `terms`; writes: parameter, centre[, outer momentum].

    The centre holds the parameters that all ranks began from.
    """
    parameter, centre = writes[:2]
    outer = centre - reads[0] / terms
    if outer_momentum:
        velocity = writes[2]
        velocity *= outer_momentum
        velocity += outer
        outer = outer + velocity * outer_momentum
    centre -= outer * outer_lr
    parameter[:] = centre


def refuse(form: Form) -> None:
    """Equal ranges; a whole number of terms; a rate that is not 0."""
    form.counts(1, 2 + bool(form.argument("outer_momentum")))
    form.alike(*form.reads, *form.writes)
    _mean.refuse_terms(form)
    if not form.argument("outer_lr") > 0:
        form.fail("needs an outer learning rate above 0: with 0, nothing that workers learn is kept")


def follow(track: Track) -> None:
    """A new version of centre, parameters and outer momentum, the same on all ranks."""
    new: list[Parts] = [[] for _ in track.op.writes]
    kept = [track.held(number) for number in range(1, len(new))]
    for low, high, (summed, centre, *velocities) in together([track.read(0), *kept]):
        began, names = track.synchronised(low, high, summed, track.op.arguments["terms"])
        if centre != Content(CENTRE, began, summed.shift):
            track.fail(
                f"applies what workers have moved {names} to another version than they began from: {centre.kind}"
            )
        if any(velocity != centre._replace(kind=MOMENTUM) for velocity in velocities):
            track.fail(f"takes the outer momentum of another version of {names}")
        rates = tuple(sorted(track.op.arguments.items()))
        version = track.version(track.op.kernel, rates, summed.key, centre.key)
        track.averaged(version, summed)
        for parts, kind in zip(new, (PARAMETER, CENTRE, MOMENTUM), strict=False):
            parts.append(Part(low, high, Content(kind, version, summed.shift)))
    for number, parts in enumerate(new):
        track.put(number, parts)


def moved(form: Form) -> float:
    """Reads the sum, the centre and its momentum, writes all but the sum."""
    return form.reads[0].bytes + form.writes[0].bytes + 2 * sum(each.bytes for each in form.writes[1:])
