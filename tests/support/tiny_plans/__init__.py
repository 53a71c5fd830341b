"""Small plans, one for each kind of communication that the vocabulary must carry, and their own reference values.

Every builder gives a plan whose buffers are float64, so that values can be compared to the last digits. `pull` is the
gradient that all of them use; the references compute with it and with nothing of the package.
"""

from __future__ import annotations

from gradsync.plan import Plan
from gradsync.rounds.lowering import lowered
from gradsync.schedules import Message
from tiny_plans.collective import in_groups, levels, repeated, synchronous, two_lanes, two_level, uneven_roles
from tiny_plans.on_axes import sharded_on_axes, summed_on_axes
from tiny_plans.other_kinds import exchanged, reduced_and_broadcast
from tiny_plans.parts import LR, RHO, SIZES, fixed_pull, layout, passes, place, pull, start
from tiny_plans.references import easgd_reference, lars_reference, server_reference, synchronous_reference
from tiny_plans.servers import async_server, easgd_round_robin, hogwild
from tiny_plans.split import dealt_ratios, sharded, sparse

__all__ = [
    "LR",
    "RHO",
    "SIZES",
    "Message",
    "async_server",
    "dealt_ratios",
    "easgd_reference",
    "easgd_round_robin",
    "every_kind",
    "exchanged",
    "fixed_pull",
    "hogwild",
    "in_groups",
    "lars_reference",
    "layout",
    "levels",
    "passes",
    "place",
    "pull",
    "reduced_and_broadcast",
    "repeated",
    "server_reference",
    "sharded",
    "sharded_on_axes",
    "sparse",
    "start",
    "summed_on_axes",
    "synchronous",
    "synchronous_reference",
    "two_lanes",
    "two_level",
    "uneven_roles",
]


def every_kind() -> dict[str, Plan]:
    """All of them, small, by name."""
    return {
        "synchronous": synchronous(2),
        "two_lanes": two_lanes(2),
        "uneven_roles": uneven_roles(3),
        "in_groups": in_groups(2, 2),
        "two_level": two_level(),
        "lowered": lowered(synchronous(3, algorithm="ring")),
        "repeated": repeated(2, 3),
        "sparse": sparse(3),
        "async_server": async_server(2),
        "hogwild": hogwild(2),
        "hogwild_unlocked": hogwild(2, locked=False),
        "easgd_round_robin": easgd_round_robin(3),
        "dealt_ratios": dealt_ratios(3),
        "sharded": sharded(3),
        "summed_on_axes": summed_on_axes(2, 3),
        "sharded_on_axes": sharded_on_axes(2, 2),
        "reduced_and_broadcast": reduced_and_broadcast(3),
        "exchanged": exchanged(3),
    }
