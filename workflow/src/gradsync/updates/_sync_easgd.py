"""Synchronous elastic averaging, of which the variants place the centre and overlap (SC17 paper, Section 5).

In an iteration (1) every worker computes its gradient, (2) the master broadcasts the centre, (3) the sum of the
workers' parameters is reduced to it, (4) workers update by Eq. 1, (5) the master by Eq. 2. Both elastic terms are of
the parameters and the centre as they are before (4) and (5) (EA-E03).

Both collectives are the backend's own, or those of an algorithm with a root: `binary_tree` is the paper's tree.
"""

from __future__ import annotations

from typing import Any, Literal

from gradsync.collectives import NATIVE, POSTCONDITION
from gradsync.errors import InputError
from gradsync.plan import Collective, Local, Plan, Ref, Role
from gradsync.updates._packed import NETWORK, Packed, elastic


def planned(packed: Packed, rho: float, *, overlapped: bool) -> Plan:
    """The plan, whose rank 0 has the centre; it is a worker, too, unless `packed` has a master beside the workers.

    `overlapped`: (2) and (3) go on beside (1), since they need nothing of it. Raises InputError if the centre would
    overshoot the mean of the workers.
    """
    rates, workers = elastic(packed, rho), len(packed.workers)
    if workers * rates["lr"] * rates["rho"] > 1:
        raise InputError(
            f"plan {packed.name!r}: the centre goes {workers} x {packed.lr:g} x {rho:g} of the way to the mean of its "
            "workers (workers x lr x rho), and overshoots: at most 1"
        )
    centre, incoming, parameter = (packed.all_of(key) for key in ("centre", "incoming", "parameter"))
    exchanged = ("broadcast", "reduce")
    in_place = packed.algorithm != NATIVE
    staged = ("stage",) if in_place else ()

    def exchange(source: Ref, after: tuple[str, ...], *updated: str) -> list[Collective]:
        """The centre to all, and the sum to rank 0; the second follows the first on their lane."""
        return [
            _collective("broadcast", packed, centre, centre, after=after, after_previous=updated),
            _collective("reduce", packed, incoming if in_place else source, incoming, after=staged),
        ]

    def stage(source: Ref) -> list[Local]:
        """Rounds add in place: to a copy of what is summed."""
        copy = Local(name="stage", kernel="copy", reads=(source,), writes=(incoming,))
        return [copy] if in_place else []

    work, ready = packed.passes(), () if overlapped else (packed.computed,)
    update = Local(
        name="update",
        kernel="elastic_worker",
        arguments=rates,
        after=exchanged,
        reads=(packed.all_of("gradient"), centre),
        writes=(parameter,),
    )
    pull = Local(
        name="pull",
        kernel="elastic_centre",
        # a master that is no worker adds its centre to the sum, which pulls it by nothing
        arguments={**rates, "terms": float(packed.ranks)},
        after=exchanged,
        reads=(incoming,),
        writes=(centre,),
    )
    master: list[Any] = [*stage(centre), *exchange(centre, staged, "pull"), pull]
    if 0 in packed.workers:
        master = [*stage(parameter), *work, *exchange(parameter, ready, "update", "pull"), update, pull]
    worker = [*stage(parameter), *work, *exchange(parameter, ready, "update"), update]
    roles = (Role("master", (0,), tuple(master)), Role("worker", tuple(range(1, packed.ranks)), tuple(worker)))
    return packed.plan(roles, "centre", "incoming")


def _collective(
    kind: Literal["broadcast", "reduce"], packed: Packed, source: Ref, target: Ref, **waits: Any
) -> Collective:
    return Collective(
        name=kind,
        kind=kind,
        algorithm=packed.algorithm,
        shape=packed.shape,
        lane=NETWORK,
        postcondition=POSTCONDITION[kind],
        reads=(source,),
        writes=(target,),
        **waits,
    )
