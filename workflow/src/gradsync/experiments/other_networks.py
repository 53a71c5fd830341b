"""What another network, or other computation, makes of the first schemes of a ranking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gradsync.experiments import predict

if TYPE_CHECKING:
    from gradsync.experiments.advise import Candidate, Options
    from gradsync.plan.workload import Workload

TIED = 1e-3  # of an iteration: predictions that are nearer are not told apart, whatever their fit's residual
COMPARED = 5  # schemes whose order on other networks is looked at
NETWORKS = {  # (start-up, transfer, computation) of what is asked: what if ...
    "half the start-up of messages": (0.5, 1.0, 1.0),
    "twice the start-up of messages": (2.0, 1.0, 1.0),
    "twice the bandwidth": (1.0, 0.5, 1.0),
    "half the bandwidth": (1.0, 2.0, 1.0),
    "computation twice as fast": (1.0, 1.0, 0.5),
}
FACTORS = tuple(
    2.0 ** (step / 2) for step in range(-10, 11)
)  # of the bandwidth, in which a change of order is looked for
BISECTIONS = 12


def residual(candidate: Candidate) -> float:
    """The mean relative residual of the fit that the cost of messages comes from, the largest of several; else 0."""
    costs = [candidate.known.all_reduce]
    if candidate.scheme.by_level:
        costs = [cost for kind, cost in candidate.known.network.costs.items() if "@" in kind]
    return max(0.0, *(float(getattr(getattr(cost, "alone", cost), "residual", 0.0)) for cost in costs))


def on(candidate: Candidate, startup: float, transfer: float, computation: float) -> float:
    """The iteration of the very plan on another network, or with other computation."""
    from gradsync.costs.scaled import scaled
    from gradsync.engine.simulate import simulate

    network = scaled(candidate.known.network, startup, transfer)
    workload = _computing(candidate.workload, computation)
    trace = simulate(candidate.plan, workload, network, interference=candidate.interference)
    return trace.iteration_seconds(candidate.plan.pace)


def replanned_iteration(
    candidate: Candidate, options: Options, startup: float, transfer: float, computation: float = 1.0
) -> float:
    """The iteration of the scheme, planned for another network or other computation."""
    from gradsync.costs.scaled import Scaled, scaled

    known = candidate.known._replace(
        all_reduce=Scaled(candidate.known.all_reduce, startup, transfer),
        network=scaled(candidate.known.network, startup, transfer),
    )
    workload = _computing(candidate.workload, computation)
    plan = predict.planned(candidate.scheme, workload, known, options.ranks, options, candidate.interference)
    return on(candidate._replace(plan=plan, workload=workload, known=known), 1.0, 1.0, 1.0)


def _computing(workload: Workload, times: float) -> Workload:
    """The workload if its computation takes so many times as long."""
    return workload.scaled(
        forward_seconds=times * workload.forward_seconds,
        backward_seconds=times * workload.backward_seconds,
        update_seconds=times * workload.update_seconds,
        note=f"computation x {times:g}",
    )


def compared(candidates: list[Candidate], options: Options) -> Iterator[dict[str, Any]]:
    """What another network, or other computation, makes of the fastest scheme; who is first there."""
    compared = candidates[:COMPARED]
    for what, factors in NETWORKS.items():
        seconds = {each.scheme.name: replanned_iteration(each, options, *factors) for each in compared}
        least = min(seconds.values())
        fastest = next(name for name, value in seconds.items() if value <= least * (1 + TIED))
        yield {
            "what": what,
            "iteration_seconds": seconds[candidates[0].scheme.name],
            "ratio": ratio(seconds[candidates[0].scheme.name], candidates[0].seconds),
            "fastest": fastest,
            "fastest_seconds": seconds[fastest],
        }


def order_changes(first_two: list[Candidate], options: Options) -> list[dict[str, Any]]:
    """The bandwidths, as multiples of that at hand, at which the order of the first two changes."""
    if len(first_two) < 2:
        return []

    def gap(bandwidth: float) -> float:
        first, second = (replanned_iteration(each, options, 1.0, 1.0 / bandwidth) for each in first_two)
        return (first - second) / second if second else 0.0

    gaps = [gap(factor) for factor in FACTORS]
    changes = []
    for (low, before), (high, after) in zip(
        zip(FACTORS, gaps, strict=True), zip(FACTORS[1:], gaps[1:], strict=True), strict=False
    ):
        if (before > TIED) != (after > TIED):
            for _ in range(BISECTIONS):
                middle = (low * high) ** 0.5
                low, high = (middle, high) if (gap(middle) > TIED) == (before > TIED) else (low, middle)
            then = first_two[1 if after > TIED else 0].scheme.name
            changes.append({"bandwidth_ratio": (low * high) ** 0.5, "fastest_above": then})
    return changes


def ratio(seconds: float, other: float | None) -> float | None:
    """None if there is nothing to hold it against: no other, or one that takes no time."""
    return seconds / other if other else None
