"""Which ranks of a plan work, which are masters, and where the model lies that they train together."""

from __future__ import annotations

from typing import NamedTuple

from gradsync.plan import Local, Plan, Ready, Role, SharedAdd


class Kept(NamedTuple):
    """The buffer that holds the model that is trained, and the ranks that hold it: of several, the mean counts."""

    buffer: str
    ranks: tuple[int, ...]


def works(role: Role) -> bool:
    """Whether ranks of the role compute gradients."""
    return any(isinstance(op, Ready) for op in role.flat)


def workers(plan: Plan) -> tuple[int, ...]:
    """The ranks that compute gradients, in order."""
    return tuple(sorted(rank for role in plan.roles if works(role) for rank in role.ranks))


def masters(plan: Plan) -> tuple[int, ...]:
    """The ranks that compute none, in order."""
    return tuple(rank for rank in range(plan.ranks) if rank not in workers(plan))


def kept(plan: Plan) -> Kept:
    """What is trained: the centre if there is one, else the parameters that a master updates, else the workers'.

    A centre belongs to the ranks that update it: to a master if one does. Others have copies of it.
    """
    shared = [buffer.name for buffer in plan.buffers if buffer.shared and buffer.role in ("centre", "parameter")]
    if shared:
        return Kept(shared[0], (0,))
    for role in ("centre", "parameter"):
        names = {buffer.name for buffer in plan.buffers if buffer.role == role}
        updating = [(each, name) for each in plan.roles for name in updated(each) if name in names]
        by_masters = [(each, name) for each, name in updating if not works(each)]
        if by_masters or (role == "centre" and updating):
            chosen, name = (by_masters or updating)[0]
            return Kept(name, chosen.ranks)
    return Kept(plan.holding("parameter") or "", workers(plan))


def updated(role: Role) -> list[str]:
    """The buffers that its kernels and its additions to shared memory write, in order."""
    return [ref.buffer for op in role.flat if isinstance(op, Local | SharedAdd) for ref in op.writes]
