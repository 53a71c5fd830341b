"""An iteration of each method on the paper's GPU node, simulated: the plan that ranks execute, with parts of Table 3.

A transfer of all weights takes as long as the point of the band says, whatever else is sent: each GPU has a link of
its own to the switch. A broadcast or a reduction is a binary tree, of which the CPU is one more member if it has the
centre.
The centre's update takes as long as the place says where it is. In methods whose workers share memory a worker copies
its weights to the CPU, whose update of the centre is part of that.

The samples of a synchronous method's workers are copied one batch after the other; those of all others go with their
own worker's turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import ceil, log2
from typing import Any, NamedTuple

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, Network
from gradsync.engine import breakdown
from gradsync.engine.masters import masters, workers
from gradsync.engine.simulate import simulate
from gradsync.kernels import KERNELS, Form
from gradsync.papers.easgd_knl.testbed import bench, points
from gradsync.papers.testbed import Testbed
from gradsync.plan import Collective, Local, Plan, Recv, RecvAny, Role, Send, SharedAdd, SharedRead
from gradsync.plan.operations import Reply
from gradsync.plan.workload import Layer, Workload

BAND = ("constants", "overlap")
FITTED = "fitted"  # an overlap, and what it is fitted to:
HIDING, EXPOSING = "sync_easgd3", "sync_easgd2"
SWEEPS = ("original_easgd", "original_easgd_no_overlap")  # a turn has an iteration of each worker, one after the other
SYNCHRONOUS = ("sync_easgd1", "sync_easgd2", "sync_easgd3", "knl_easgd", "ssgd")
PRICED_WORKERS = 4  # Table 3
TURNS, FIRST = 24, 8  # that are simulated, and the first that counts
SHARED_KERNELS = {"shared_read": "copy", "shared_add": "add"}
FORWARD_SHARE = 1 / 3  # of forward and backward; no time of Table 3 depends on it


class Constants(NamedTuple):
    """Seconds at a point of the band: of a transfer of all weights, and of the parts of an iteration."""

    cpu_gpu: float
    gpu_gpu: float
    data: float  # of one worker's batch
    for_backward: float
    gpu_update: float
    cpu_update: float


class Iteration(NamedTuple):
    """Seconds of an iteration, and of the parts that a worker spends it with, as `engine/breakdown.py` names them."""

    seconds: float
    parts: dict[str, float]
    for_backward: float

    def share(self, part: str) -> float:
        """A part of a worker's time."""
        return self.parts[part] / sum(self.parts.values())


def band(settings: Settings) -> list[dict[str, str]]:
    """The points: every combination."""
    return points(bench(settings), *BAND)


def constants(file: Testbed, name: str) -> Constants:
    """The parts at a point that `constants` names."""
    known, weights = ("original", name) if name.startswith("pcie") else (name, "")
    keys = ("data", "for_backward", "gpu_update", "cpu_update")
    parts = [file.positive("constants", known, f"{key}_seconds") for key in keys]
    if weights:
        own = weights.replace(" ", "_")
        startup, rate, size = (
            file.positive("constants", own, key) for key in ("startup_seconds", "bytes_per_second", "weights_bytes")
        )
        return Constants(startup + size / rate, startup + size / rate, *parts)
    if known == "sync":  # what all four take together, spread over the transfers in a row
        shares = [
            file.positive("constants", known, f"{ends}_exchange_seconds") / transfers_in_a_row(scheme, PRICED_WORKERS)
            for ends, scheme in (("cpu_gpu", "sync_easgd1"), ("gpu_gpu", "sync_easgd2"))
        ]
        return Constants(*shares, *parts)
    return Constants(*(file.positive("constants", known, f"{ends}_seconds") for ends in ("cpu_gpu", "gpu_gpu")), *parts)


def transfers_in_a_row(scheme: str, count: int) -> int:
    """Transfers of all weights, one after the other, in an exchange of so many workers: counted on the plan.

    A collective is as many as its tree is deep. A master that serves who comes serves all of them in turn.
    """
    plan = planned(scheme, count)
    role = plan.role_of[0]
    transfers = 0
    for op in role.flat:
        if isinstance(op, Collective):
            transfers += ceil(log2(len(plan.group(op, 0)))) if plan.ranks > 1 else 0
        elif isinstance(op, RecvAny | Reply):
            transfers += len(workers(plan))
        elif isinstance(op, Send | Recv | SharedRead | SharedAdd):
            transfers += 1
    return transfers


def exchange_seconds(scheme: str, count: int, parts: Constants) -> float:
    """Seconds of the transfers of an exchange of all of so many workers."""
    between_gpus = scheme in SYNCHRONOUS and not masters(planned(scheme, count))
    return transfers_in_a_row(scheme, count) * (parts.gpu_gpu if between_gpus else parts.cpu_gpu)


def served_at_once(scheme: str, count: int) -> int:
    """The most workers that exchange with the centre at one moment: all, if nothing in the plan makes them wait."""
    one_by_one = (Send, Recv, RecvAny, Reply)
    return (
        1
        if any(
            isinstance(op, one_by_one) or (isinstance(op, SharedAdd) and op.locked)
            for op in planned(scheme, count).role_of[0].flat
        )
        else count
    )


@cache
def planned(scheme: str, count: int) -> Plan:
    """The plan of a method with so many workers; nothing that is timed depends on its rates."""
    known = schemes.Scheme(name=scheme)
    layer = Layer(name="weights", bytes=4, backward_seconds=1.0)
    workload = Workload(name="all weights", forward_seconds=1.0, layers=(layer,))
    return schemes.plan(known, workload, Linear(0.0, 0.0), known.ranks(count), lr=0.01)


def iteration(scheme: str, count: int, point: dict[str, str], file: Testbed) -> Iteration:
    """An iteration of a method with so many workers, at a point of the band."""
    parts = constants(file, point["constants"])
    if scheme == HIDING and point["overlap"] == FITTED:
        exposing = _simulated(EXPOSING, count, parts)
        hidden = file.number("overlap", "fitted_hidden_share") * exposing.parts[breakdown.AMONG_WORKERS]
        left = exposing.parts[breakdown.AMONG_WORKERS] - hidden
        return exposing._replace(
            seconds=exposing.seconds - hidden, parts={**exposing.parts, breakdown.AMONG_WORKERS: left}
        )
    return _simulated(scheme, count, parts)


@cache
def _simulated(scheme: str, count: int, parts: Constants) -> Iteration:
    plan = planned(scheme, count)
    copying = parts.data * (count if scheme in SYNCHRONOUS else 1)
    workloads = {rank: _workload(plan, plan.role_of[rank], parts, copying) for rank in range(plan.ranks)}
    trace = simulate(plan, workloads, _network(plan, scheme, parts), turns=TURNS)
    spans, samples = [], dict[int, list[tuple[float, float]]]()
    for span in trace.spans:
        if span.verb == "need":  # samples are copied first
            samples.setdefault(span.rank, []).append((span.start, span.start + copying))
            span = span._replace(start=span.start + copying)
        spans.append(span)
    starts = {rank: trace.turn_starts(rank) for rank in workers(plan)}
    last = min(map(len, starts.values())) - 1
    windows = {rank: (each[FIRST], each[last]) for rank, each in starts.items()}
    turns = last - FIRST
    seconds = sum(end - start for start, end in windows.values()) / (len(windows) * turns)
    by_part = breakdown.seconds(plan, spans, windows, samples)
    scale = 1 / (len(windows) * turns * (count if scheme in SWEEPS else 1))
    return Iteration(
        seconds / (count if scheme in SWEEPS else 1),
        {part: value * scale for part, value in by_part.items()},
        parts.for_backward,
    )


def _network(plan: Plan, scheme: str, parts: Constants) -> Network:
    depth = ceil(log2(plan.ranks)) if plan.ranks > 1 else 0
    transfer = parts.cpu_gpu if masters(plan) else parts.gpu_gpu
    tree = Linear(depth * transfer, 0.0, f"binary tree of {plan.ranks}")
    both = Linear(2 * depth * transfer, 0.0, tree.source)
    return Network({"send": Linear(parts.cpu_gpu, 0.0), "broadcast": tree, "reduce": tree, "all_reduce": both})


def _workload(plan: Plan, role: Role, parts: Constants, copying: float) -> Workload:
    """What a rank of the role computes, and how long what it does with weights takes."""
    at_worker = role.ranks[0] in workers(plan)
    backward = (1 - FORWARD_SHARE) * parts.for_backward
    return Workload(
        name="Table 3",
        forward_seconds=FORWARD_SHARE * parts.for_backward + copying,
        update_seconds=parts.gpu_update if at_worker else parts.cpu_update,
        layers=(Layer(name=plan.tensors[0].name, bytes=4, backward_seconds=backward),),
        kernels=dict(_kernels(plan, role, parts, at_worker)),
    )


def _kernels(plan: Plan, role: Role, parts: Constants, at_worker: bool) -> Iterator[tuple[str, float]]:
    """Seconds for each byte that a kernel moves."""
    update = parts.gpu_update if at_worker else parts.cpu_update
    seconds = {
        "elastic_worker": update,
        "elastic_centre": update,
        "sgd_difference": update,
        "elastic_difference": 0.0,  # part of the CPU's update
        "copy": parts.cpu_gpu,
        "add": parts.cpu_gpu + parts.cpu_update,
    }
    for op in role.flat:
        kernel: Any = op.kernel if isinstance(op, Local) else SHARED_KERNELS.get(op.verb)
        if kernel in seconds:
            yield kernel, seconds[kernel] / KERNELS[kernel].moved(Form(plan, op))
