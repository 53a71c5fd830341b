"""How long operations take: computation by workloads, messages by costs or by the links that they cross."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from gradsync import collectives, optimizers
from gradsync.collectives import NATIVE
from gradsync.costs import Network
from gradsync.costs.contention import capacity, host_seconds
from gradsync.costs.interference import Interference
from gradsync.engine.contention import Side
from gradsync.engine.progress import Clock, Cost, Factors
from gradsync.errors import InputError
from gradsync.kernels import KERNELS, Form, Operand
from gradsync.plan import WORLD, Collective, Local, Need, Plan, Ready
from gradsync.plan.workload import Workload
from gradsync.topologies import NO_LINK, Speeds, Topology

OF_SGD = tuple(name for name in KERNELS if optimizers.plain(name) == "sgd")
"""Kernels that take the workload's update_seconds, which are of SGD."""
MOVED_BY_SGD = 5  # numbers of a parameter: gradient, parameter and momentum are read, the last two are written
OF_METHODS = (
    *("elastic_worker", "elastic_centre", "elastic_difference", "sgd_difference"),
    *("average", "outer_nesterov"),
)
UPDATES = (*(name for name in KERNELS if optimizers.plain(name) in optimizers.names()), *OF_METHODS)
# kernels that take the workload's norm_seconds, which are of `norm`
OF_NORM = ("norm", "squares", "root_of_sum", "scaler")
NORMS = (*OF_NORM, "lars_ratios", "lamb_ratios")
SHARED = {"shared_read": "copy", "shared_add": "add"}  # what moves as many bytes


class NetworkClock(Clock):
    """Computation as long as a rank's workload says, messages as the network's costs: nothing is known of its links."""

    def __init__(
        self,
        plan: Plan,
        workloads: Mapping[int, Workload],
        network: Network,
        add_seconds_per_byte: float | None,
        interference: Interference | None = None,
    ):
        self.plan, self.network, self.gamma, self.interference = plan, network, add_seconds_per_byte, interference
        distinct = {id(workload): workload for workload in workloads.values()}
        tables = {key: self._table(workload) for key, workload in distinct.items()}
        self.tables = {rank: tables[id(workload)] for rank, workload in workloads.items()}
        self.message_costs: dict[int, Cost] = {}
        self.interference_factors: dict[int, Factors] = {}
        self.kernel_seconds: dict[tuple[int, int], float] = {}  # of local and shared operations
        self.distinct: dict[str, Collection[int]] = {}
        all_reduce = network.costs.get("all_reduce")  # contention is measured and fitted of all-reduces alone
        self.capacity = 1.0 if all_reduce is None else capacity(all_reduce)

    def _table(self, workload: Workload) -> tuple[Workload, dict[str, float], dict[str, float]]:
        backward = {layer.name: layer.backward_seconds for layer in workload.layers}
        names = [layer.name for layer in workload.layers]
        forward = dict(zip(names, workload.forward_by_layer().tolist(), strict=True))
        for tensor in self.plan.tensors:
            if tensor.name not in backward:
                raise InputError(
                    f"workload {workload.name!r} has no layer {tensor.name!r}, which plan {self.plan.name!r} sends: "
                    "plan again from this workload"
                )
        return workload, forward, backward

    def local(self, rank: int, operation: Any) -> float:
        """Forward, backward, norm and update seconds of the workload; other kernels by the bytes that they move.

        An update of another kernel than SGD takes the seconds a byte that were measured of that kernel, if the workload
        has them; else the update seconds, times the bytes that it moves for each of SGD's.

        Raises InputError if the workload doesn't say what that takes.
        """
        workload, forward, backward = self.tables[rank]
        if isinstance(operation, Ready):
            return workload.backward_seconds if operation.tensor is None else backward[operation.tensor]
        if isinstance(operation, Need):
            if operation.layer is None:
                return workload.forward_seconds
            if operation.layer not in forward:
                raise InputError(f"workload {workload.name!r} has no layer {operation.layer!r}, which the plan needs")
            return forward[operation.layer]
        key = id(workload), id(operation)  # of the plan, which lives as long
        if key not in self.kernel_seconds:
            self.kernel_seconds[key] = self._kernel(workload, operation)
        return self.kernel_seconds[key]

    def _kernel(self, workload: Workload, operation: Any) -> float:
        form = Form(self.plan, operation)
        kernel = optimizers.plain(operation.kernel) if isinstance(operation, Local) else SHARED[operation.verb]
        if kernel in OF_SGD or (kernel in UPDATES and kernel not in workload.kernels):
            updated = sum(each.elements / each.pieces for each in _updated(form)) / self.plan.tensors[-1].stop
            return workload.update_seconds * updated * self._of_sgd(kernel, form)
        if kernel in OF_NORM or (kernel in NORMS and kernel not in workload.kernels):
            elements = form.most(lambda operand: operand.elements / operand.pieces)
            return workload.norm_seconds * elements / self.plan.tensors[-1].stop
        if kernel == "add" and self.gamma is not None:
            return self.gamma * form.writes[0].bytes
        moved = KERNELS[kernel].moved(form)
        if moved and kernel not in workload.kernels:
            what = f"plan {self.plan.name!r}: {operation.name!r} moves {moved:g} bytes"
            raise unknown_kernel(kernel, workload, what)
        return KERNELS[kernel].seconds(form, workload.kernels)

    @staticmethod
    def _of_sgd(kernel: str, form: Form) -> float:
        """How many bytes an update moves for each that SGD with momentum would, which is measured."""
        if kernel in OF_SGD:  # whatever it has besides
            return 1.0
        return KERNELS[kernel].moved(form) / (MOVED_BY_SGD * sum(operand.bytes for operand in _updated(form)))

    def message(self, operation: Any) -> Cost:
        """The network's cost of this kind of message, split at its start-up."""
        key = id(operation)  # of the plan, which lives as long; roles may use a name for messages of different sizes
        cost = self.message_costs.get(key)
        if cost is None:
            cost = self.message_costs[key] = self._cost(operation)
        return cost

    def _cost(self, operation: Any) -> Cost:
        model = self.network.of(priced_as(operation))
        size = self._bytes(operation)
        startup = model.startup_seconds(size)
        host = min(host_seconds(model), startup)
        # what is transferred is seconds of a message alone: it takes no less on a link that could carry several
        return Cost(startup - host, model.seconds(size) - startup, 1.0, host)

    def around(self, operation: Collective, ranks: Sequence[int]) -> Sequence[tuple[float, Mapping[Hashable, float]]]:
        """The ways out and in of its ranks along its axis; phase by phase of all of them, if they don't do the same."""
        # other axes than that of all ranks have links of their own
        axis = () if operation.over == WORLD else (operation.over,)
        alike: list[tuple[float, Mapping[Hashable, float]]] = [
            (1.0, {(side, rank, *axis): 1.0 for rank in ranks for side in ("out", "in")})
        ]
        if operation.algorithm == NATIVE:
            return alike
        group = self.plan.group(operation, ranks[0])
        shape = operation.shape or (len(group),)
        phases = collectives.phases(operation.algorithm, shape, operation.root, operation.kind)
        if all((parts == 1.0).all() for _, parts in phases):  # then it may be simulated on one of them
            return alike
        ways = [(side, rank, *axis) for side in ("out", "in") for rank in group]
        distinct = self._distinct(operation.over)
        kept = [i for i, way in enumerate(ways) if i in distinct or way[1] in ranks]
        return [(share, {ways[i]: part for i in kept if (part := float(parts.flat[i]))}) for share, parts in phases]

    def _distinct(self, axis: str) -> Collection[int]:
        """Of the ways out, then in, of a group along `axis`: one of those that always carry as much as one another.

        They are full together, so that one stands for all. That takes a plan of which all ranks do the same: no message
        but those of its collectives takes these ways.
        """
        if not self.plan.symmetric:
            return range(2 * self.plan.ranks)
        if axis not in self.distinct:
            over = [op for op in self.plan.roles[0].flat if isinstance(op, Collective) and op.over == axis]
            shape = (self.plan.group_size(over[0]),)
            described = {(op.algorithm, op.shape or shape, op.root, op.kind) for op in over if op.algorithm != NATIVE}
            carried = [parts.ravel() for each in described for _, parts in collectives.phases(*each)]
            _, first = np.unique(np.array(carried), axis=1, return_index=True)
            self.distinct[axis] = set(first.tolist())
        return self.distinct[axis]

    def side(self, key: Any) -> Side:
        """A rank's way out or in."""
        return Side(self.capacity)

    def handover(self) -> float:
        """What was measured with the interference."""
        return self.interference.handover_seconds if self.interference else 0.0

    def factors(self, operation: Any) -> Factors:
        """What a message of this size and computation do to one another."""
        if self.interference is None:
            return Factors(1.0, 1.0)
        key = id(operation)
        factors = self.interference_factors.get(key)
        if factors is None:
            factors = self.interference_factors[key] = Factors(*self.interference.factors(self._bytes(operation)))
        return factors

    def _bytes(self, operation: Any) -> int:
        return self.plan.bytes_of(operation.writes if isinstance(operation, Collective) else operation.reads)


def unknown_kernel(kernel: str, workload: Workload, what: str) -> InputError:
    """The error that a workload lacks a kernel that `what` needs."""
    return InputError(
        f"{what} ({kernel}), and workload {workload.name!r} doesn't say what a byte takes: measure the layers again, "
        f'or add to the workload "kernels": {{"{kernel}": SECONDS_PER_BYTE}}'
    )


def priced_as(operation: Any) -> str:
    """The key of a message's cost in a network: `send`, the kind of a collective, `all_reduce@node` over an axis."""
    if not isinstance(operation, Collective):
        return "send"
    return operation.kind if operation.over == WORLD else f"{operation.kind}@{operation.over}"


class LinksClock(NetworkClock):
    """Messages take the links of their routes; native collectives the time of the network's cost, and a ring's links.

    What is transferred is bytes: the capacity of a link is its bandwidth, and the seconds of a native collective are so
    many bytes of the slowest of its links, of which it gets 1/capacity at most if its cost has a capacity.
    """

    def __init__(
        self,
        plan: Plan,
        workloads: Mapping[int, Workload],
        network: Network,
        add_seconds_per_byte: float | None,
        interference: Interference | None,
        topology: Topology,
        speeds: Speeds,
    ):
        super().__init__(plan, workloads, network, add_seconds_per_byte, interference)
        topology.shape_of(plan.ranks)  # refuses more ranks than it holds
        self.topology, self.alpha = topology, speeds.alpha
        self.bandwidth, self.latency = (each.tolist() for each in speeds.of(topology))

    def route(self, source: int, destination: int, rail: int) -> Sequence[Hashable]:
        """The links between two ranks."""
        ends = (np.array([each]) for each in (source, destination, rail))
        return [int(link) for link in self.topology.route(*ends)[0] if link != NO_LINK]

    def around(self, operation: Collective, ranks: Sequence[int]) -> Sequence[tuple[float, Mapping[Hashable, float]]]:
        """The links of a ring through the ranks; of one that the ring crosses twice, twice what it transfers."""
        pairs = zip(ranks, (*ranks[1:], ranks[0]), strict=True)
        crossed = Counter(link for pair in pairs if pair[0] != pair[1] for link in self.route(*pair, 0))
        return [(1.0, {link: float(times) for link, times in crossed.items()})]

    def side(self, key: Any) -> Side:
        """A link."""
        return Side(self.bandwidth[key], self.latency[key])

    def _cost(self, operation: Any) -> Cost:
        if not isinstance(operation, Collective):
            return Cost(self.alpha, self._bytes(operation))
        cost = super()._cost(operation)
        ((_, links),) = self.around(operation, self.plan.group(operation, 0))
        alone = min((self.bandwidth[link] / times for link, times in links.items()), default=1.0) / self.capacity
        return cost._replace(transfer=cost.transfer * alone, limit=alone)


def _updated(form: Form) -> list[Operand]:
    """What an update changes: ranges of parameters, or else of a centre or a difference, which it writes first."""
    return [operand for operand in form.writes if operand.role == "parameter"] or form.writes[:1]
