"""Changes of a loss scale: who takes it out, who moves it and when, and by which norm ranks decide to skip a step."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from changed_plans.coordinated import everywhere
from changed_plans.editing import Change
from gradsync.kernels import KERNELS, SCALED, UNSCALED
from gradsync.plan import Buffer, Collective, Local, Plan, Ref

SCALER, NORM = Ref("scaler", 0, 3), Ref("norm", 0, 1)
Body = list[Any]
Fault = Callable[[Body, random.Random], None]


def ignored(body: Body, chance: random.Random) -> None:
    """An update without the loss scale, clipped by the norm or not; or all of them."""
    every = [i for i, op in enumerate(body) if isinstance(op, Local) and op.kernel.endswith((SCALED, UNSCALED))]
    for i in every if chance.random() < 0.5 else every[:1]:
        op = body[i]
        clip = {"clip": 0.5} if chance.random() < 0.5 and NORM in op.reads else {}
        known = {key: value for key, value in op.arguments.items() if key not in ("clip", "growth_interval")}
        body[i] = dataclasses.replace(
            op,
            kernel=op.kernel.removesuffix(UNSCALED).removesuffix(SCALED),
            reads=tuple(ref for ref in op.reads if ref != SCALER and (clip or ref != NORM)),
            writes=tuple(ref for ref in op.writes if ref != SCALER),
            arguments={**known, **clip},
        )


def moved_early(body: Body, chance: random.Random) -> None:
    """The loss scale moves at another place, after what lies before it there."""
    place = _place(body)
    if place is not None:
        op = body.pop(place)
        to = chance.randrange(1, len(body) + 1)
        after = (body[to - 1].name,)
        body.insert(to, dataclasses.replace(op, after=after, lane=chance.choice((op.lane, body[to - 1].lane))))


def still(body: Body, chance: random.Random) -> None:
    """It never moves, or not once a turn."""
    place = _place(body)
    if place is None:
        return
    op = body[place]
    if chance.random() < 0.5:
        body.insert(place + 1, dataclasses.replace(op, name="again", after=(op.name,)))
        return
    del body[place]
    for i, other in enumerate(body):
        kept = {
            key: tuple(name for name in getattr(other, key) if name != op.name) for key in ("after", "after_previous")
        }
        body[i] = dataclasses.replace(other, **kept)


def unawaited(body: Body, chance: random.Random) -> None:
    """The next forward doesn't wait for it, or another layer's does."""
    waiting = [i for i, op in enumerate(body) if "scaler" in getattr(op, "after_previous", ())]
    needs = [i for i, op in enumerate(body) if op.verb == "need"]
    for i in waiting:
        left = tuple(name for name in body[i].after_previous if name != "scaler")
        body[i] = dataclasses.replace(body[i], after_previous=left)
    if waiting and needs and chance.random() < 0.5:
        i = chance.choice(needs)
        body[i] = dataclasses.replace(body[i], after_previous=("scaler", *body[i].after_previous))


def by_own_norm(body: Body, chance: random.Random) -> None:
    """Every rank decides by the norm of what it has itself: no message sums the squares."""
    gone = next((op for op in body if isinstance(op, Collective) and op.writes[0].buffer == "squares"), None)
    if gone is not None:
        body.remove(gone)
        for i, op in enumerate(body):
            if gone.name in op.after:
                waits = (*(name for name in op.after if name != gone.name), *gone.after)
                body[i] = dataclasses.replace(op, after=waits)


def by_part(body: Body, chance: random.Random) -> None:
    """An operation decides by a norm of its own: that of a part of the gradients, or of what they were before."""
    deciding = [i for i, op in enumerate(body) if isinstance(op, Local) and NORM in op.reads]
    if not deciding:
        return
    i = chance.choice(deciding)
    op = body[i]
    gradients = [ref for each in body if each.verb in ("ready", "collective") for ref in each.writes]
    part = chance.choice([ref for ref in (*op.reads, *gradients) if ref.buffer == "gradient"])
    own = Ref("own", 0, 1)
    reads = tuple(own if ref == NORM else ref for ref in op.reads)
    norm = Local(name="own", lane=op.lane, kernel="norm", after=op.after, reads=(part,), writes=(own,))
    body[i : i + 1] = [norm, dataclasses.replace(op, reads=reads, after=("own",))]


def _place(body: Body) -> int | None:
    return next((i for i, op in enumerate(body) if isinstance(op, Local) and op.kernel == "scaler"), None)


def taken_out(body: Body, chance: random.Random) -> None:
    """An update takes a loss scale out of gradients that never had one."""
    for i, op in enumerate(body):
        if isinstance(op, Local) and f"{op.kernel}{SCALED}" in KERNELS and chance.random() < 0.7:
            body[i] = dataclasses.replace(op, kernel=f"{op.kernel}{SCALED}", writes=(*op.writes, SCALER))


WITH = (ignored, moved_early, still, unawaited, by_own_norm, by_part)


def faulty(plan: Plan, how: Fault, chance: random.Random) -> Plan:
    """The plan with that change in all roles."""
    if how is by_part and "norm" in plan.buffer:
        own = dataclasses.replace(plan.buffer["norm"], name="own")
        plan = dataclasses.replace(plan, buffers=(*plan.buffers, own))
    return everywhere(plan, lambda body: how(body, chance))


def loss_scale(plan: Plan, chance: random.Random) -> Plan:
    """One of these changes; a plan without a loss scale gets one that nobody, or not everybody, knows of."""
    if "scaler" in plan.buffer:
        return faulty(plan, chance.choice(WITH), chance)
    scaled = dataclasses.replace(plan, buffers=(*plan.buffers, Buffer("scaler", 3, role="scaler")))
    return faulty(scaled, taken_out, chance)


CHANGES: dict[str, Change] = {"loss scale": loss_scale, "loss scale again": loss_scale}
