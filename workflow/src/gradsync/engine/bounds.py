"""Times that no iteration of a plan can be shorter than. Two kinds, which are never mixed:

- a **hard bound** follows from computation, and from the bytes that have to leave or enter a node at the nominal rate
  of its links. Nothing may lie below it: what makes the rows of tables refuses that.
- a **model bound** follows from computation and from costs that were fitted, at the lower end of their intervals. It
  holds as far as the model does: what was fitted to one message at a time says nothing of several.

Both hold for every plan that sends the same bytes in the same types between as many ranks. A rank computes in every
iteration; messages that wait for a gradient and that the next forward waits for travel between the first gradient of
the last micro-batch and what follows them, norm and update (`needs.py`); and all messages of an iteration take no more
than its length, whatever they overlap.

If a turn has several iterations, as those of a rank's own between two synchronisations, a bound is their mean.

Bytes: an all-reduce of M bytes between n nodes sends 2 (n - 1) M over all their links, whatever its algorithm, so that
some node sends 2 (n - 1) / n M (Patarasuk and Yuan, JPDC 69(2), 2009, Section 3: if no switch adds); a reduce-scatter
and an all-gather send half of it each; a broadcast sends M into each node but its own, and a reduce sends M out of
each. Collectives that are described by rounds send what their rounds say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gradsync import collectives
from gradsync.collectives import NATIVE, Shape
from gradsync.costs import Network
from gradsync.costs.contention import largest_capacity
from gradsync.engine.clocks import priced_as
from gradsync.engine.needs import Need, in_step, needs
from gradsync.errors import RunError
from gradsync.plan import DTYPE_BYTES, WORLD, Collective, Group, Plan, Recv, Send
from gradsync.plan.workload import Workload
from gradsync.rounds.lowering import lowered, shape_of
from gradsync.topologies import NO_LINK, Speeds, Topology

Workloads = Workload | Mapping[int, Workload]
ROUNDING = 1e-9  # of a bound
MOST_RANKS = 1024  # whose routes to one another are looked at
# how often the nodes but one send each byte of a message
SENT = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0, "broadcast": 1.0, "reduce": 1.0, "all_to_all": 1.0}


class Links(NamedTuple):
    """A node's way out, and in: bytes of messages per second, over all links of its own at their nominal rate.

    `burst_bytes` pass before that rate holds; `ranks_per_node` neighbouring ranks are a node.
    """

    bytes_per_second: float
    burst_bytes: float = 0.0
    ranks_per_node: int = 1

    def seconds(self, size: float) -> float:
        """So many bytes take no less."""
        return max(size - self.burst_bytes, 0.0) / self.bytes_per_second


class Demand(NamedTuple):
    """What a turn needs, whatever the order of its messages. Seconds and bytes.

    `awaited` bytes leave some node after the first `ready` seconds of its turn and before the last `after`;
    `busiest` leave, or enter, some node in a turn.
    """

    computation: float
    ready: float
    after: float
    awaited: float
    busiest: float

    def seconds(self, links: Links) -> float:
        """No turn is shorter."""
        awaited = self.ready + links.seconds(self.awaited) + self.after if self.awaited else 0.0
        return max(self.computation, awaited, links.seconds(self.busiest))


def largest_speedup(workload: Workload, ranks: int, bytes_per_second: float) -> float:
    """S_max over one rank, if each has one link of that rate (ASC-WFBP, Eq. 41 to 43).

    An all-reduce sends at least 2 (P - 1) / P of the gradients, which overlaps with the backward pass and no more. The
    paper leaves (P - 1) / P out.
    """
    wire = 2 * (ranks - 1) / ranks * workload.bytes / bytes_per_second
    alone = workload.forward_seconds + workload.backward_seconds
    return ranks * alone / (alone + max(0.0, wire - workload.backward_seconds))


def refuse_below(seconds: float, bound: float, what: str) -> None:
    """Raises RunError if an iteration is shorter than its hard bound: something is wrong."""
    if seconds < bound * (1 - ROUNDING):
        raise RunError(
            f"{what}: an iteration of {seconds:.6g} s lies below its hard bound of {bound:.6g} s: its time, its bytes, "
            "its computation or the rate of the links is wrong"
        )


def hard_bound_seconds(plan: Plan, workload: Workloads, *links: Links) -> float:
    """Nothing that sends the bytes of this plan has a shorter iteration; without `links` computation alone counts.

    Several `links` are the same ones seen rank by rank and node by node.
    """
    return _hard(plan, needs(plan, workload), links)


def both_bounds_seconds(plan: Plan, workload: Workloads, network: Network, *links: Links) -> tuple[float, float]:
    """(hard bound, model bound)."""
    need_of = needs(plan, workload)
    return _hard(plan, need_of, links), _model(plan, need_of, network)


def _hard(plan: Plan, need_of: Mapping[int, Need], links: Sequence[Links]) -> float:
    if not links:
        return max(need_of[rank].computation for rank in in_step(plan)) / plan.iterations
    return max(_demand(plan, need_of, each.ranks_per_node).seconds(each) for each in links) / plan.iterations


def of_gradients(workload: Workload, ranks: int, size: float | None = None, ranks_per_node: int = 1) -> Demand:
    """Of any synchronous step whose update waits for an all-reduce of `size` bytes (None: of all gradients)."""
    nodes = -(-ranks // ranks_per_node)
    sent = SENT["all_reduce"] * (nodes - 1) / nodes * (workload.bytes if size is None else size)
    computed = workload.forward_seconds + workload.backward_seconds + workload.update_seconds
    return Demand(computed, float(workload.ready_seconds()[0]), workload.update_seconds, sent, sent)


def demand(plan: Plan, workload: Workloads, ranks_per_node: int = 1) -> Demand:
    """What a turn needs of the ranks in step with it; `ranks_per_node` neighbouring ranks are a node."""
    return _demand(plan, needs(plan, workload), ranks_per_node)


def _demand(plan: Plan, need_of: Mapping[int, Need], ranks_per_node: int) -> Demand:
    ranks = _representatives(plan, need_of)
    all_bytes, awaited_bytes = _Bytes(plan, ranks_per_node), _Bytes(plan, ranks_per_node)
    for owners, op, is_awaited in _operations(plan, need_of, ranks):
        all_bytes.add(owners, op)
        if is_awaited:
            awaited_bytes.add(owners, op)
    of_ranks = [need_of[rank] for rank in ranks]
    waiting = [need for need in of_ranks if need.awaited]
    return Demand(
        max(need.computation for need in of_ranks),
        min((need.ready for need in waiting), default=0.0),
        min((need.after for need in waiting), default=0.0),
        awaited_bytes.leaving(),
        max(all_bytes.leaving(), all_bytes.entering()),
    )


def _representatives(plan: Plan, need_of: Mapping[int, Need]) -> list[int]:
    """The ranks in step; the first of them if all do the same."""
    ranks = in_step(plan)
    native = all(op.algorithm == NATIVE and op.over == WORLD for op in plan.roles[0].flat if isinstance(op, Collective))
    return ranks[:1] if plan.symmetric and native and len(set(need_of.values())) == 1 else ranks


def _operations(plan: Plan, need_of: Mapping[int, Need], ranks: list[int]) -> Iterator[tuple[np.ndarray, Any, bool]]:
    """(those of `ranks` that have it, an operation, whether it is awaited); alike for all ranks of a role."""
    counted = set(ranks)
    for role in plan.roles:
        owners = np.array([rank for rank in role.ranks if rank in counted], int)
        if len(owners):
            awaited = need_of[owners[0]].awaited
            for index, op in enumerate(role.flat):
                yield owners, op, index in awaited


class _Bytes:
    """What leaves and enters each node at least, by the operations that are added."""

    def __init__(self, plan: Plan, ranks_per_node: int):
        self.plan, self.ranks_per_node = plan, ranks_per_node
        self.out, self.into = np.zeros((2, -(-plan.ranks // ranks_per_node)))
        self.between: dict[tuple[int, ...], float] = defaultdict(float)  # nodes -> what they send between them
        self.nodes_of: dict[tuple[int, ...], tuple[int, ...]] = {}  # ranks -> nodes

    def add(self, ranks: np.ndarray, op: Any) -> None:
        """An operation that each of `ranks` has; a collective counts once, with the first of its own."""
        if isinstance(op, Send | Recv):
            peer, way = (op.to, self.out) if isinstance(op, Send) else (op.source, self.into)
            nodes = ranks // self.ranks_per_node
            size = self.plan.bytes_of(op.reads if isinstance(op, Send) else op.writes)
            np.add.at(way, nodes[nodes != peer // self.ranks_per_node], size)
        elif isinstance(op, Collective):
            counted = set(ranks.tolist())
            for group in self.plan.groups(op):
                if group[0] in counted:
                    self._collective(op, group)

    def _collective(self, op: Collective, group: Group) -> None:
        if op.algorithm == NATIVE:
            nodes, size = self._nodes(group), self.plan.bytes_of(op.writes)
            self.between[nodes] += SENT[op.kind] * (len(nodes) - 1) * size
            if op.kind in ("broadcast", "reduce"):
                root = self.plan.root(op, group[0]) // self.ranks_per_node
                way = self.into if op.kind == "broadcast" else self.out
                way[[node for node in nodes if node != root]] += size
            return
        pieces, out, into = _pieces(
            op.algorithm, shape_of(op, len(group)), op.root, op.kind, group, self.ranks_per_node
        )
        for ref in op.writes:  # of pieces that are not all equally long, the shortest counts
            elements = (ref.stop - ref.start) // self.plan.mesh.pieces(ref) // pieces
            size = elements * DTYPE_BYTES[self.plan.buffer[ref.buffer].dtype]
            self.out[: len(out)] += size * out
            self.into[: len(into)] += size * into

    def _nodes(self, group: tuple[int, ...]) -> tuple[int, ...]:
        if group not in self.nodes_of:
            self.nodes_of[group] = tuple(sorted({rank // self.ranks_per_node for rank in group}))
        return self.nodes_of[group]

    def leaving(self) -> float:
        """Of the node that sends most, or of the mean of those that send something between them."""
        means = [total / len(nodes) + self.out[list(nodes)].min() for nodes, total in self.between.items()]
        return float(max([self.out.max(), *means]))

    def entering(self) -> float:
        """The same of what enters."""
        means = [total / len(nodes) for nodes, total in self.between.items()]
        return float(max([self.into.max(), *means]))


@lru_cache(maxsize=256)
def _pieces(
    algorithm: str, shape: Shape, root: int, kind: str, group: Group, ranks_per_node: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Pieces of a message of a group, and how many leave and enter each node.  # both (nodes,)"""
    node = np.array(group) // ranks_per_node
    out, into = np.zeros((2, int(node.max()) + 1))
    for step in collectives.rounds(algorithm, shape, root, kind):
        source, to = node[step.source], node[step.destination]
        between = source != to
        for carried, nodes in ((out, source), (into, to)):
            carried += np.bincount(nodes[between], step.pieces[between], minlength=len(carried))
    return collectives.get(algorithm).pieces(shape), out, into


def cuts(topology: Topology, speeds: Speeds, ranks: int) -> list[Links]:
    """What leaves a rank at most and, if ranks share a node, what leaves a node; the same enters.

    All that leaves crosses the links that are first on their routes, and those that are second if no route is shorter:
    the narrowest of these cuts counts. Of more than MOST_RANKS ranks nothing is known.
    """
    if ranks > MOST_RANKS:
        return []
    bandwidth, _ = speeds.of(topology)
    all_ranks, ways_out = np.arange(ranks), []
    for ranks_per_node in sorted({1, topology.ranks_a_node or 1}):
        widest = 0.0
        for start in range(0, ranks, ranks_per_node):
            inside = all_ranks[start : start + ranks_per_node]
            outside = np.setdiff1d(all_ranks, inside)
            source, to = (each.ravel() for each in np.meshgrid(inside, outside, indexing="ij"))
            if not len(to):
                continue
            firsts, seconds = [], []
            for rail in range(topology.rails):
                route = topology.route(source, to, np.full_like(to, rail))
                first = (route != NO_LINK).argmax(axis=1)
                firsts.append(route[np.arange(len(route)), first])
                seconds.append(route[:, min(1, route.shape[1] - 1)])
            cut = [np.unique(np.concatenate(links)) for links in (firsts, seconds)]
            widest = max(widest, min(float(bandwidth[links].sum()) for links in cut if links[0] != NO_LINK))
        if widest:
            ways_out.append(Links(widest, ranks_per_node=ranks_per_node))
    return ways_out


def links_bound_seconds(plan: Plan, workload: Workloads, topology: Topology, speeds: Speeds) -> float:
    """If every transfer takes the links that it crosses: of what a rank sends, over its own links; of any link.

    As hard, or as much of a model, as these speeds are.
    """
    need_of, ranks = needs(plan, workload), in_step(plan)
    of_ranks = [need_of[rank] for rank in ranks]
    awaited = {rank: {plan.role_of[rank].flat[index].name for index in need_of[rank].awaited} for rank in ranks}
    spelled_out = lowered(plan)
    sends = [
        (rank, op.to, op.rail, spelled_out.bytes_of(op.reads), op.name.partition(".send")[0] in awaited[rank])
        for rank in ranks
        for op in spelled_out.role_of[rank].flat
        if isinstance(op, Send)
    ]
    computation = max(need.computation for need in of_ranks)
    if not sends:
        return computation / plan.iterations
    source, to, rail, size, is_awaited = np.array(sends, np.int64).T
    route = topology.route(source, to, rail)  # (sends, hops)
    used = route != NO_LINK
    first = used & (used.cumsum(axis=1) == 1) & (is_awaited != 0)[:, None]  # the first link of each send
    sizes, (bandwidth, _) = np.broadcast_to(size[:, None], route.shape), speeds.of(topology)
    wire, busy = (
        float((np.bincount(route[at], sizes[at], len(bandwidth)) / bandwidth).max(initial=0.0)) for at in (first, used)
    )
    least = max(computation, busy, *(need.ready + wire + need.after for need in _least(of_ranks)))
    return least / plan.iterations


def _least(of_ranks: list[Need]) -> Iterator[Need]:
    """The need, of those that wait for messages, that leaves most time for them."""
    waiting = [need for need in of_ranks if need.awaited]
    if waiting:
        yield min(waiting, key=lambda need: need.ready + need.after)


def model_bound_seconds(plan: Plan, workload: Workloads, network: Network) -> float:
    """By the costs of the network, each at the lower end of its interval, and the most that a link may carry at a time.

    A message takes its ranks' ways out and in for as long as it is transferred; those of several ranks are in step.
    """
    return _model(plan, needs(plan, workload), network)


def _model(plan: Plan, need_of: Mapping[int, Need], network: Network) -> float:
    ranks = _representatives(plan, need_of)
    ways = {name: _Ways(plan, network) for name in ("awaited", "out", "in")}
    for owners, op, is_awaited in _operations(plan, need_of, ranks):
        for way, parts in _taken(plan, owners, op):
            ways[way].add(op, owners, parts)
            if way == "out" and is_awaited:
                ways["awaited"].add(op, owners, parts)
    capacity = largest_capacity(network.costs["all_reduce"]) if "all_reduce" in network.costs else 1.0
    seconds = {name: way.seconds() / capacity for name, way in ways.items()}  # each (ranks,)
    waiting = [(rank, need_of[rank]) for rank in ranks if need_of[rank].awaited]
    awaited = [need.ready + seconds["awaited"][rank] + need.after for rank, need in waiting]
    computation = max(need_of[rank].computation for rank in ranks)
    return float(max([computation, *awaited, *seconds["out"][ranks], *seconds["in"][ranks]])) / plan.iterations


class _Ways:
    """What passes the ranks' ways out, or in: by kind of operation, bytes and how much of their transfers."""

    def __init__(self, plan: Plan, network: Network):
        self.plan, self.network = plan, network
        self.sizes: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(plan.ranks))
        self.parts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(plan.ranks))

    def add(self, op: Any, ranks: np.ndarray, parts: np.ndarray) -> None:
        """An operation that takes these parts of the ways of `ranks`."""
        kind = priced_as(op)
        size = self.plan.bytes_of(op.reads if isinstance(op, Send) else op.writes)
        self.sizes[kind][ranks] += size
        self.parts[kind][ranks] += size * parts

    def seconds(self) -> np.ndarray:
        """Each rank's way takes no less, whatever messages the bytes of a kind are cut into.  # (ranks,)"""
        seconds = np.zeros(self.plan.ranks)
        for kind, sizes in self.sizes.items():
            cost = self.network.of(kind)
            for size in np.unique(sizes[sizes > 0]):
                at = sizes == size
                seconds[at] += cost.least_transfer_seconds(float(size), low=True) * self.parts[kind][at] / size
        return seconds


def _taken(plan: Plan, ranks: np.ndarray, op: Any) -> Iterator[tuple[str, np.ndarray]]:
    """(way, how much of its transfer takes the way of each of `ranks`) of an operation that they have."""
    if isinstance(op, Send | Recv):
        yield ("out" if isinstance(op, Send) else "in"), np.ones(len(ranks))
    elif isinstance(op, Collective):
        parts = np.ones((2, plan.ranks))
        if op.algorithm != NATIVE:
            size = plan.group_size(op)
            phases = collectives.phases(op.algorithm, shape_of(op, size), op.root, op.kind)
            places = [plan.mesh.place(rank, op.over) for rank in range(plan.ranks)]
            parts = sum((share * each for share, each in phases), np.zeros((2, size)))[:, places]
        for way, each in zip(("out", "in"), parts, strict=True):
            yield way, each[ranks]
