"""Small plans whose matrices travel as factors, and messages of them done by hand."""

from __future__ import annotations

from typing import Any

from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.costs import Linear
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from tiny_workloads import workload

SHAPES = [(4, 5), (4,), (3, 2, 4), (3,), (2, 2)]  # backward order; the last is shorter whole than factored
COST = Linear(2.0, 0.05)


def load() -> Workload:
    sizes = [20, 4, 24, 3, 4]
    return workload(
        [8 * size for size in sizes], [1.0] * len(sizes), forward=1.0, update=0.1, dtype="float64", shapes=SHAPES
    )


def low_rank(ranks: int, schedule: str = "single", rank: int = 1, *, feedback: bool = True, **how: Any) -> Plan:
    scheme = Scheme(
        name="factored",
        schedule=schedule,
        compressor="powersgd",
        compressor_options={"rank": rank, "seed": 3},
        error_feedback=feedback,
        **how,
    )
    return schemes.plan(scheme, load(), COST, ranks, lr=0.125, momentum=0.5)
