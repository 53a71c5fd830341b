"""All-reduce costs of Table II of the MG-WFBP paper, and costs of the other collectives on a ring.

Point to point a message of M bytes takes alpha + beta M; adding it to another takes gamma M.
Each algorithm then is affine, T(M) = a + b M.

Differs from the paper: gamma is seconds per byte (Table I says "per pair of floating point numbers", yet Table II
adds it to beta). The three algorithms with log2 N are the paper's for powers of two; at other N they have more rounds
than these formulas say: ceil(log2 N) levels of the tree; for the others two rounds of the whole message on top of those
of the next smaller power of two (`rounds/flow_level.py` counts them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log2

from gradsync.costs import Linear, MessageCost, Network
from gradsync.costs.half import halves
from gradsync.errors import InputError


def ring(n: int, alpha: float, beta: float, gamma: float = 0.0) -> Linear:
    """a = 2(N-1) alpha, b = 2(N-1)/N beta + (N-1)/N gamma."""
    return Linear(2 * (n - 1) * alpha, 2 * (n - 1) / n * beta + (n - 1) / n * gamma, f"ring of {n}")


def binary_tree(n: int, alpha: float, beta: float, gamma: float = 0.0) -> Linear:
    """a = 2 alpha log2 N, b = (2 beta + gamma) log2 N."""
    return Linear(2 * alpha * log2(n), (2 * beta + gamma) * log2(n), f"binary tree of {n}")


def recursive_doubling(n: int, alpha: float, beta: float, gamma: float = 0.0) -> Linear:
    """a = alpha log2 N, b = (beta + gamma) log2 N."""
    return Linear(alpha * log2(n), (beta + gamma) * log2(n), f"recursive doubling of {n}")


def halving_doubling(n: int, alpha: float, beta: float, gamma: float = 0.0) -> Linear:
    """a = 2 alpha log2 N, b = 2 beta - (2 beta + gamma)/N + gamma."""
    return Linear(2 * alpha * log2(n), 2 * beta - (2 * beta + gamma) / n + gamma, f"halving and doubling of {n}")


ALGORITHMS: dict[str, Callable[..., Linear]] = {
    "ring": ring,
    "binary_tree": binary_tree,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
}


def network(
    n: int,
    alpha: float,
    beta: float,
    gamma: float = 0.0,
    all_reduce: str = "ring",
    axes: Mapping[str, int] | None = None,
) -> Network:
    """Costs of every kind of message between `n` ranks; others as rings, trees or a pairwise exchange.

    `axes`: name -> places of a mesh's axes, whose groups have the same between so many ranks (`all_reduce@node`).
    """
    if n < 1:
        raise InputError(f"{n} ranks: at least 1")
    if all_reduce not in ALGORITHMS:
        raise InputError(f"all-reduce algorithm {all_reduce!r}: known are {', '.join(ALGORITHMS)}")
    costs = _between(n, alpha, beta, gamma, all_reduce)
    for axis, places in (axes or {}).items():
        of_groups = _between(places, alpha, beta, gamma, all_reduce)
        costs |= {f"{kind}@{axis}": cost for kind, cost in of_groups.items()}
    return Network({**costs, "send": Linear(alpha, beta, "point to point")})


def _between(n: int, alpha: float, beta: float, gamma: float, all_reduce: str) -> dict[str, MessageCost]:
    half = Linear((n - 1) * alpha, (n - 1) / n * beta, f"ring of {n}")
    return {
        "all_reduce": ALGORITHMS[all_reduce](n, alpha, beta, gamma),
        "reduce_scatter": Linear(half.a, half.b + (n - 1) / n * gamma, half.source),
        "all_gather": half,
        "broadcast": Linear(alpha * log2(n), beta * log2(n), f"binary tree of {n}"),
        "all_to_all": Linear(n // 2 * alpha, (n - 1) / n * beta, f"pairwise exchange of {n}"),
        "reduce": Linear(alpha * log2(n), (beta + gamma) * log2(n), f"binary tree of {n}"),
    }


def around(cost: MessageCost, n: int) -> Network:
    """Costs of every kind if only the all-reduce is known.

    Reduce-scatter and all-gather take half of it; the others are as on a ring that would take its a and b. If the cost
    is no line, a and b are its start-up and its slope at a message of 1 MiB.
    """
    others = network(n, *_step(cost, n))
    return Network({**others.costs, **halves(cost), "all_reduce": cost})


def with_axes(known: Network, n: int, axes: Mapping[str, int]) -> Network:
    """The network with costs of groups too: rings, each step as long as one of a ring of all `n` ranks.

    `axes`: name -> places. Costs of groups that are known stay. Raises InputError if no all-reduce is known.
    """
    if not axes:
        return known
    return Network({**network(n, *_step(known.of("all_reduce"), n), axes=axes).costs, **known.costs})


def _step(cost: MessageCost, n: int) -> tuple[float, float]:
    """Seconds, and seconds per byte, of a step of the ring that an all-reduce between `n` ranks would be."""
    size = 1024.0 * 1024.0
    startup = cost.startup_seconds(size)
    slope = (cost.seconds(size) - startup) / size
    steps = max(2 * (n - 1), 1)
    return startup / steps, slope * n / steps
