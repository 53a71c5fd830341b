"""A scheme of the paper planned for a workload and simulated at a point of the band, with the parts of its iteration.

Selections take the time of their passes over the memory, launches included; an exact top-k takes the
seconds that are given of it. The sum of sparse messages moves its bytes at the rate of the memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gradsync.configuration.scheme import Scheme
from gradsync.configuration.schemes import plan as planned_by
from gradsync.costs import Linear
from gradsync.engine.bounds import hard_bound_seconds, refuse_below
from gradsync.engine.simulate import simulate
from gradsync.kernels import ENCODE, KERNELS, Form
from gradsync.papers.cloud_topk.testbed import DTYPE, SINGLE, BandPoint, Bench
from gradsync.plan import Local, Plan
from gradsync.plan.trace import Trace
from gradsync.plan.workload import Workload

PICOSECONDS = 12  # digits: differences of sums of spans have no more
TURNS = 2  # an update waits for all messages: turns are alike
EXACT = "exact_topk"
NO_COST = Linear(0.0, 0.0, "not asked for: buckets are filled by their bytes")


class Timed(NamedTuple):
    """Columns of a row, by their names. Seconds; a part that is exposed is one in which nothing is computed."""

    iteration_seconds: float
    exposed_communication_seconds: float  # messages and their sums
    compression_seconds: float  # selections, whether or not they are exposed
    exposed_compression_seconds: float
    sum_seconds: float  # of sparse messages
    messages: int
    hard_bound_seconds: float


def timed(testbed: Bench, scheme: Scheme, workload: Workload, point: BandPoint, exact_seconds: float = 0.0) -> Timed:
    """An iteration; `exact_seconds` of an exact top-k of the whole gradient.

    Raises RunError if it is faster than the links allow.
    """
    plan = planned(testbed, scheme, workload, point)
    workload = with_kernels(testbed, plan, workload, point, exact_seconds)
    network = testbed.network(scheme.collective, point)
    trace = simulate(plan, workload, network, turns=TURNS)
    seconds = trace.iteration_seconds()
    hard = _hard_bound(testbed, plan, workload)
    refuse_below(seconds, hard, f"{scheme.name} of {workload.name}, {point}")
    exposed = trace.exposed_by_operation()
    selections = {op.name for op in _selections(plan)}
    exposed_selections = sum(each for name, each in exposed.items() if name in selections)
    return Timed(
        seconds,
        round(sum(exposed.values()) - exposed_selections, PICOSECONDS),
        sum(seconds_of(trace, selections).values()),
        exposed_selections,
        sum(seconds_of(trace, {op.name for op in _kernels(plan, "decode_sum")}).values()),
        len(plan.messages()),
        hard,
    )


def _hard_bound(testbed: Bench, plan: Plan, workload: Workload) -> float:
    """Of computation and links alone, whatever kernels take: it is the same at many points."""
    key = (id(plan), workload.name, workload.forward_seconds, workload.backward_seconds, workload.update_seconds)
    if key not in testbed.bounds:
        free = workload.model_copy(update={"kernels": dict.fromkeys(KERNELS, 0.0)})
        testbed.bounds[key] = hard_bound_seconds(plan, free, testbed.nominal)
    return testbed.bounds[key]


def planned(testbed: Bench, scheme: Scheme, workload: Workload, point: BandPoint) -> Plan:
    """The plan of a scheme with the schedule of the point and, if it has any, its density.

    Buckets depend on nothing but the bytes of the tensors, so that plans are the same wherever these are.
    """
    density = point.density if scheme.compressor else None
    sizes = tuple((layer.name, layer.bytes) for layer in workload.layers)
    key = (scheme.name, scheme.compressor, density, point.schedule, sizes, point.wire)
    if key not in testbed.plans:
        changes: dict[str, Any] = {"density": density}
        if point.schedule == SINGLE:
            changes |= {"schedule": SINGLE, "options": {}}
        # what kernels take makes no difference to the buckets; a compressed plan without any is refused
        known = workload.model_copy(update={"kernels": dict.fromkeys(KERNELS, 0.0)})
        made = planned_by(scheme.model_copy(update=changes), known, NO_COST, testbed.workers, ranks_a_node=testbed.gpus)
        testbed.plans[key] = made
    return testbed.plans[key]


def with_kernels(testbed: Bench, plan: Plan, workload: Workload, point: BandPoint, exact_seconds: float) -> Workload:
    """The workload with what selections and sums take of each byte that they move, as the simulator asks for it."""
    selections = _selections(plan)
    kernels = {"decode_sum": 1 / testbed.memory_rate(point)}
    if selections:
        kernel = selections[0].kernel
        forms = [Form(plan, op) for op in selections]
        elements = sum(form.reads[0].elements / form.reads[0].pieces for form in forms)
        seconds = exact_seconds
        if kernel != f"{ENCODE}{EXACT}":
            seconds = testbed.mstopk_seconds(elements, point.wire, len(forms), point)
        kernels[kernel] = seconds / sum(KERNELS[kernel].moved(form) for form in forms)
    return workload.model_copy(update={"kernels": {**workload.kernels, **kernels}})


def seconds_of(trace: Trace, names: set[str]) -> dict[str, float]:
    """How long each of these operations takes in the first turn."""
    return {span.operation: span.end - span.start for span in trace.of(0, 0) if span.operation in names}


def _selections(plan: Plan) -> list[Local]:
    return _kernels(plan, ENCODE)


def _kernels(plan: Plan, start: str) -> list[Local]:
    """The operations whose kernels' names begin so."""
    return [op for op in plan.roles[0].flat if isinstance(op, Local) and op.kernel.startswith(start)]


def one_message(elements: int, width: int) -> Workload:
    """A gradient of one tensor that is ready at once."""
    layer = {"name": "all", "bytes": elements * width, "backward_seconds": 0.0, "dtype": DTYPE[width]}
    return Workload.model_validate({"name": f"{elements} elements", "forward_seconds": 0.0, "layers": [layer]})


def alone(workload: Workload, computation: float, update: float, forward_share: float) -> Workload:
    """What one GPU computes: so many seconds of forward and backward, and of the update."""
    ahead = forward_share * computation
    scaled = workload.scaled(
        forward_seconds=ahead, backward_seconds=computation - ahead, update_seconds=0.0, note="of the testbed"
    )
    return scaled.model_copy(update={"update_seconds": update})
