"""What messages cost, from what is known: a line, measured points, links of a topology, or a measured cluster."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradsync.configuration.options import option
from gradsync.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gradsync.plan import Axis, Plan
    from gradsync.plan.workload import Workload

LINE = "a=SECONDS,b=SECONDS_PER_BYTE, or a CSV file of bytes,seconds"
ANY_COLLECTIVE = (
    "a line is the cost of one collective, whichever it is: of equal messages, {} and any other collective tie by it; "
    "to tell them apart, give --allreduce alpha=SECONDS,bandwidth=BYTES_PER_SECOND, or points measured of each"
)
LINKS_BY_KIND = "--allreduce alpha=SECONDS,inside=BYTES_PER_SECOND,between=BYTES_PER_SECOND"
LINKS = "alpha=SECONDS,bandwidth=BYTES_PER_SECOND (or by kind of links: alpha=..,inside=..,between=..)"
LATENCY = "latency_"  # and a kind of links: what adds to the start-up there
FORMS = "a=S,b=S_PER_BYTE|POINTS.csv|alpha=S,bandwidth=BYTES_PER_S"
GIVEN = (
    "cost of an all-reduce: a line, measured bytes,seconds to fit, or start-up and bandwidth of the links, from which "
    "the scheme's collective on its topology is simulated"
)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of computation and messages: options of all that plans or simulates."""

    workload: str = option(meaning="layers in backward order; or a model of --cluster", metavar="W.json|MODEL")
    allreduce: str | None = option(None, GIVEN, metavar=FORMS, either="all-reduce", needed=True)
    cluster: str | None = option(
        None, "a measured cluster: its all-reduces and layer times", metavar="CLUSTER.yaml", either="all-reduce"
    )
    nodes: int | None = option(None, "--cluster: on so many nodes", metavar="K", unset="the fewest")
    scale: bool = option(False, "--cluster: if that number of ranks was not measured, scale as a ring")
    interference: str | None = option(
        None, "how computation and messages slow one another down, as measured", metavar="FILE.json"
    )
    contention: str | None = option(
        None,
        "what several messages at once take, as measured (native collective)",
        metavar="FILE.json",
        either="contention",
    )
    capacity: float | None = option(
        None,
        "messages at once that the link carries as fast as one alone, at least 1",
        metavar="X",
        either="contention",
        unset="1, they share it",
    )


class Costs(NamedTuple):
    """The cost of the plan's all-reduce, of every kind of message, and of the links themselves."""

    all_reduce: Any
    network: Any
    warnings: list[str]
    links: list[Any]  # what a node has at a nominal rate; empty if nothing is known of links


def scheme_of(plan: Any) -> Any:
    """A scheme whose messages travel as those of a plan that was read."""
    from gradsync import collectives
    from gradsync.configuration.scheme import Scheme
    from gradsync.plan import Collective

    operations = (op for role in plan.roles for op in role.flat)
    sums = ("all_reduce", "reduce_scatter")
    algorithms = (op.algorithm for op in operations if isinstance(op, Collective) and op.kind in sums)
    topology = plan.provenance.get("topology", "")
    return Scheme(name=plan.name, collective=next(algorithms, collectives.NATIVE), topology=topology)


def refuse_other(plan: Plan, workload: Workload) -> None:
    """Raises InputError for a workload that the plan was not made from: other layers or sizes; or a plan of none."""
    from gradsync.plan import DTYPE_BYTES, Need, Ready

    about = f"workload {workload.name!r} is not what plan {plan.name!r} was made from"
    if not any(isinstance(op, Need | Ready) for role in plan.roles for op in role.flat):
        raise InputError(
            f"plan {plan.name!r} trains nothing: no operation of it is a forward or backward (need, ready), and the "
            "times of a workload are of those"
        )
    layers = {layer.name: layer for layer in workload.layers}
    for tensor in plan.tensors:
        if tensor.name not in layers:
            raise InputError(f"{about}: it has no layer {tensor.name!r}: give that one, or plan again from this one")
    if unplanned := layers.keys() - {tensor.name for tensor in plan.tensors}:
        raise InputError(
            f"{about}: its layer {min(unplanned)!r} is not in the plan ({len(unplanned)} such): give that one, or plan "
            "again"
        )
    width = DTYPE_BYTES[plan.buffer[plan.holding("gradient") or plan.buffers[0].name].dtype]
    for tensor in plan.tensors:
        planned_bytes, layer_bytes = width * (tensor.stop - tensor.start), layers[tensor.name].bytes
        if planned_bytes != layer_bytes:
            raise InputError(
                f"{about}: layer {tensor.name!r} has {layer_bytes} bytes there and {planned_bytes} in the plan: give "
                "that one, or plan again"
            )


def cost_of(text: str, option: str = "--allreduce", ranks: int | None = None, collective: str = "") -> Any:
    """The cost of a message; `ranks` and `collective` choose if a file has several."""
    from gradsync.costs import Linear, fitted, kinds

    pairs = _pairs(text)
    if pairs is None:
        sizes, times = fitted.load_points(text, ranks, collective)
        cost = fitted.fit(sizes, times, source=text)
        # of the backend's own; a pipe has been read to its end
        if collective or ranks is None or not Path(text).is_file():
            return cost
        return replace(cost, halves=kinds.halves(text, ranks))
    return Linear(*_two_numbers(text, option, pairs, ("a", "b"), LINE), "given")


def speeds_of(text: str | None) -> Any:
    """Start-up and bandwidths of links; raises InputError if the text says nothing of links."""
    from gradsync.topologies import Speeds

    pairs = (_pairs(text) if text else None) or {}
    kinds = sorted(key for key in pairs.keys() - {"alpha"} if not key.startswith(LATENCY))
    late = {key for key in pairs if key.startswith(LATENCY)}
    if (
        "alpha" not in pairs
        or not kinds
        or ("bandwidth" in kinds and len(kinds) > 1)
        or not late <= {f"{LATENCY}{kind}" for kind in kinds}
        or _twice(text or "", pairs)
    ):
        raise InputError(f"--allreduce {text}: give {LINKS}")
    values = {key: _number(text, key, value) for key, value in pairs.items()}
    latency = {kind: values.get(f"{LATENCY}{kind}", 0.0) for kind in kinds} if late else 0.0
    bandwidth = {kind: values[kind] for kind in kinds}
    return Speeds(alpha=values["alpha"], bandwidth=bandwidth.get("bandwidth", bandwidth), latency=latency)


def costs(options: Known, ranks: int, scheme: Any) -> tuple[Any, Costs]:
    """(workload, costs of a scheme's messages) from files, from the links of a topology, or from a measured cluster.

    With --capacity or --contention, of several messages at once too.
    """
    workload, alone = _costs_alone(options, ranks, scheme)
    contended = _contended(options, ranks, scheme, alone)
    return workload, contended._replace(warnings=[*contended.warnings, *_under_load(options, workload)])


def _under_load(options: Known, workload: Any) -> list[str]:
    """Warnings of what was timed while the machine had other work."""
    from gradsync.files import reading
    from gradsync.statistics import quiet

    warnings = quiet.load_warnings(workload.provenance, f"workload {options.workload}")
    if options.allreduce and Path(options.allreduce).is_file():  # a pipe has been read to its end
        points = reading.text(options.allreduce, "--allreduce")
        warnings += quiet.load_warnings_of_points(points, f"all-reduce times {options.allreduce}")
    return warnings


def _contended(options: Known, ranks: int, scheme: Any, costs: Costs) -> Costs:
    """The same costs, with the contention that --capacity or --contention describes; without either as they are."""
    from gradsync.collectives import NATIVE
    from gradsync.costs import Network
    from gradsync.costs.contention import Contended, largest_capacity
    from gradsync.costs.contention_points import Contention
    from gradsync.costs.half import halves
    from gradsync.statistics import quiet

    alone = costs.all_reduce
    if options.capacity is not None:
        cost, notes = Contended(alone, options.capacity), []
    elif options.contention:
        if scheme.algorithm != NATIVE or scheme.by_level:
            raise InputError(
                f"--contention: all-reduces of the backend's own were measured, none of {scheme.collective!r}: "
                "give --capacity"
            )
        measured = Contention.load(options.contention, ranks)
        fit = measured.fit()
        cost, notes = fit.contended(alone), [f"contention {options.contention}: {note}" for note in fit.notes]
        notes += quiet.load_warnings(measured.provenance, f"contention {options.contention}")
    else:
        return costs
    network = Network({**costs.network.costs, **halves(cost), "all_reduce": cost})
    # a link that carries several such messages at full speed has as many times what one takes of it
    links = [link._replace(bytes_per_second=link.bytes_per_second * largest_capacity(cost)) for link in costs.links]
    return Costs(cost, network, costs.warnings + notes, links)


def _costs_alone(options: Known, ranks: int, scheme: Any) -> tuple[Any, Costs]:
    from gradsync import clusters
    from gradsync.clusters import choice
    from gradsync.collectives import NATIVE
    from gradsync.plan.workload import Workload

    if not options.cluster:
        for key, value in (("nodes", options.nodes), ("scale", options.scale)):
            if value not in (None, False):
                raise InputError(f"--{key}: only with --cluster, whose all-reduces it chooses from")
        workload = Workload.load(options.workload)
        if options.allreduce is None:
            raise InputError("--allreduce: needed if --cluster names no measured cluster")
        return workload, of_text(options.allreduce, scheme, ranks)
    if scheme.algorithm != NATIVE:
        raise InputError(
            f"--cluster: all-reduces of the backend's own were measured there, none of {scheme.collective!r}: give "
            f"--allreduce {LINKS}, or the points of gradsync measure allreduce --collective {scheme.collective}"
        )
    profile = clusters.load(options.cluster)
    cost, ranks_per_node, warnings = choice.cost(
        profile, options.cluster, ranks, nodes=options.nodes, scale=options.scale
    )
    if Path(options.workload).is_file():
        workload = Workload.load(options.workload)
    else:
        workload, notes = choice.workload(profile, options.cluster, options.workload, ranks_per_node)
        warnings = warnings + notes
    return workload, Costs(cost, _others(cost, cost, ranks), warnings, [])


def of_text(text: str, scheme: Any, ranks: int) -> Costs:
    """The costs of a scheme's messages from what `--allreduce` takes: a line, links, or a file of measured points."""
    on_links = {"alpha", "bandwidth"} & (_pairs(text) or {}).keys()
    return _on_links(text, scheme, ranks) if on_links else _measured(text, scheme, ranks)


def _measured(text: str, scheme: Any, ranks: int) -> Costs:
    """The cost of the scheme's collective; other messages take what was measured, or follow from the backend's own.

    A line is the cost of whichever collective it is taken for: a warning says that it tells none of them apart.
    """
    from gradsync.collectives import NATIVE
    from gradsync.costs import Network, kinds
    from gradsync.costs.half import halves

    collective = scheme.measured_as(ranks)
    cost = native = cost_of(text, ranks=ranks, collective=collective)
    if collective:
        with suppress(InputError):  # a file of that collective alone
            native = cost_of(text, ranks=ranks)
    network = _others(cost, native, ranks)
    if Path(text).is_file():
        of_its_own = halves(cost) if collective else {}  # the file has those of the backend's
        network = Network({**network.costs, **kinds.measured(text, ranks), **of_its_own})
    alike = _pairs(text) is not None and scheme.algorithm != NATIVE
    return Costs(cost, network, [ANY_COLLECTIVE.format(scheme.algorithm)] if alike else [], [])


def _on_links(text: str, scheme: Any, ranks: int) -> Costs:
    """Costs from start-up and bandwidth of the links: those of the very collective on its topology.

    The backend's own all-reduce is taken for a ring, which is what Gloo does.
    """
    from gradsync import collectives
    from gradsync.collectives import NATIVE
    from gradsync.costs import Network, alpha_beta
    from gradsync.engine import bounds
    from gradsync.rounds import flow_level

    speeds = speeds_of(text)
    collective = "ring" if scheme.algorithm == NATIVE else scheme.algorithm
    topology = scheme.network(ranks)
    cost = flow_level.cost(collective, topology, speeds, ranks).line
    in_halves = collectives.halves(collective, collectives.shape_on(collective, topology, ranks))
    kinds = (collectives.REDUCE_SCATTER, collectives.ALL_GATHER) if in_halves else ()
    halves = {kind: flow_level.cost(collective, topology, speeds, ranks, kind=kind).line for kind in kinds}
    slowest = min(speeds.bandwidth.values()) if isinstance(speeds.bandwidth, dict) else speeds.bandwidth
    longest = 2 * (sum(speeds.latency.values()) if isinstance(speeds.latency, dict) else speeds.latency)  # both ends
    others = alpha_beta.network(ranks, speeds.alpha + longest, 1 / slowest)
    network = Network({**others.costs, **halves, "all_reduce": cost})
    return Costs(cost, network, [], bounds.cuts(topology, speeds, ranks))


def on_axes(known: Costs, allreduce: str | None, axes: Sequence[Axis], ranks: int, sent: Iterable[str]) -> Costs:
    """The same, with what messages over the axes of a plan cost; `sent` are its kinds (`all_gather@node`).

    As measured, if the file of all-reduces has points between as many places. Else inside and between nodes, if the
    links of both are known, as rings on these: the ranks of a node share its links. Else as rings on the links of all
    ranks.
    """
    from gradsync.costs import Network
    from gradsync.costs.alpha_beta import network, with_axes

    if not axes:
        return known
    places = {axis.name: axis.size for axis in axes}
    speeds = _speeds_of_axes(allreduce, places)
    if speeds is None:
        lacking = axes_lacking(allreduce, axes, ranks, sent)
        notes = [f"messages over {', '.join(lacking)} are timed as rings on the same links"] if lacking else []
        of_axes = _measured_over(allreduce, places, ranks)
        network_of_axes = with_axes(Network({**known.network.costs, **of_axes}), ranks, places)
        return known._replace(network=network_of_axes, warnings=[*known.warnings, *notes])
    late = speeds.latency if isinstance(speeds.latency, dict) else dict.fromkeys(("inside", "between"), speeds.latency)
    inside, between = speeds.bandwidth["inside"], speeds.bandwidth["between"]
    links = {  # a message crosses the links of both ends, between nodes also those of both nodes
        "local": (2 * late["inside"], 1 / inside),
        "node": (2 * (late["inside"] + late["between"]), max(places["local"] / between, 1 / inside)),
    }
    of_links = {
        f"{kind}@{axis}": cost
        for axis, (latency, beta) in links.items()
        for kind, cost in network(places[axis], speeds.alpha + latency, beta).costs.items()
    }
    return known._replace(network=Network({**known.network.costs, **of_links}))


def axes_lacking(allreduce: str | None, axes: Sequence[Axis], ranks: int, sent: Iterable[str]) -> list[str]:
    """The axes over which messages are sent whose cost is neither measured nor follows from given links."""
    places = {axis.name: axis.size for axis in axes}
    if _speeds_of_axes(allreduce, places) is not None:
        return []
    of_axes = _measured_over(allreduce, places, ranks)
    needed = {kind for kind in sent if kind.partition("@")[2] in places} - of_axes.keys()
    return [axis for axis in places if any(kind.endswith(f"@{axis}") for kind in needed)]


def _speeds_of_axes(allreduce: str | None, places: Mapping[str, int]) -> Any:
    """The links inside and between nodes, if they are given and the axes are those of nodes."""
    given = allreduce is not None and "inside" in (_pairs(allreduce) or {})
    return speeds_of(allreduce) if given and set(places) == {"node", "local"} else None


def _measured_over(allreduce: str | None, places: Mapping[str, int], ranks: int) -> dict[str, Any]:
    """The costs over axes of so many places that a file of all-reduces has: kind (`all_gather@node`) -> cost."""
    from gradsync.costs import kinds

    measured = kinds.measured(allreduce, ranks, places) if allreduce and Path(allreduce).is_file() else {}
    return {kind: cost for kind, cost in measured.items() if "@" in kind}


def _others(cost: Any, native: Any, ranks: int) -> Any:
    """The network with that all-reduce and its halves; other messages take what they take beside the backend's own."""
    from gradsync.costs import Network, alpha_beta
    from gradsync.costs.half import halves

    return Network({**alpha_beta.around(native, ranks).costs, **halves(cost), "all_reduce": cost})


def _pairs(text: str) -> dict[str, str] | None:
    """KEY=VALUE,KEY=VALUE; None if the text names a file."""
    return dict(re.findall(r"(\w+)=([^,]*)", text)) if "=" in text and not Path(text).is_file() else None


def _two_numbers(
    text: str, option: str, pairs: dict[str, str], names: tuple[str, str], form: str
) -> tuple[float, float]:
    if set(pairs) != {*names} or _twice(text, pairs):
        raise InputError(f"{option} {text}: give {form}")
    try:
        return float(pairs[names[0]]), float(pairs[names[1]])
    except ValueError:
        raise InputError(f"{option} {text}: {names[0]} and {names[1]} must be numbers") from None


def _twice(text: str, pairs: dict[str, str]) -> bool:
    """Whether a key is there more than once, or something else than KEY=VALUE."""
    return text.count("=") != len(pairs)


def _number(text: str | None, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"--allreduce {text}: {key} must be a number") from None


def positive(option: str, text: str, meaning: str, least: float = 0.0) -> float:
    """The number that an option gives; raises InputError for anything that is none, below `least` or infinite."""
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not least <= value < inf:
        raise InputError(f"{option} {text}: must be a finite number of {meaning}")
    return value
