"""What a plan must compute: n ranks in one process, values only, no network, NumPy.

Ranks take their turns in the order that the plan's waits allow. Sums run in order of rank, but those in shared memory
in that of their rounds, as they are executed. Receive-from-any is resolved by the order of turns, or by recorded
`arrivals` of a real run.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from gradsync import collectives
from gradsync.collectives import REDUCE
from gradsync.engine.progress import Clock, Progress
from gradsync.errors import InputError, RunError
from gradsync.kernels import KERNELS, reads_of
from gradsync.learning_rates import UNCHANGED, Rate
from gradsync.plan import BYTES, KEYED, Buffer, Collective, Plan, Ref, piece
from gradsync.rounds.lowering import shape_of

Gradient = Callable[[int, int, np.ndarray], np.ndarray]
"""(rank, number, parameter) -> the rank's flat gradient in backward order.

`number` is that of the pass, counted over all turns: with one pass a turn it is the turn.
"""


def evaluate(
    plan: Plan,
    turns: int,
    gradient: Gradient,
    initial: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]],
    *,
    arrivals: Mapping[tuple[int, int, str], int] | None = None,
    dtype: str | None = None,
    first: int = 0,
    rate: Rate = UNCHANGED,
) -> list[dict[str, np.ndarray]]:
    """Buffers of every rank after `turns` turns, of which the first has number `first`.

    `initial` gives the first values of buffers by name (copied for each rank; the others begin at zero), for all ranks
    or for each; of shards, the whole buffer's or the rank's own. `dtype` replaces the floating-point type of all
    buffers. `rate` multiplies learning rates. Passes are counted from `first` on, too. Raises RunError if the plan is
    stuck.
    """
    refuse_bytes(plan)
    parameter = plan.holding("parameter") or ""
    values = _initial_values(plan, initial, dtype)
    outcome = Progress(plan, turns, Clock(), arrivals=arrivals).run()
    if outcome.stuck:
        raise RunError(f"oracle: plan {plan.name!r} is stuck: check it first")
    sent: dict[tuple[int, int, str, int, int], deque[list[np.ndarray]]] = defaultdict(deque)
    last_pass: dict[int, tuple[int, np.ndarray]] = {}  # rank -> number of its last pass and the gradient of that
    source_of: dict[tuple[int, int, str], int] = {}
    collectives_done: set[tuple[str, int, tuple[int, ...]]] = set()
    named = {role.name: {op.name: op for op in role.flat} for role in plan.roles}
    for event in outcome.events:
        rank, turn = event.rank, event.turn + first
        op = plan.role_of[rank].flat[event.step]
        views = [_view(plan, values[rank], ref, rank) for ref in reads_of(op, plan.mesh, rank)]
        targets = [_view(plan, values[rank], ref, rank) for ref in op.writes]
        match op.verb:
            case "ready":
                role, ref = plan.role_of[rank], op.writes[0]
                number = turn * role.passes + role.pass_of[op.name]
                if rank not in last_pass or last_pass[rank][0] != number:
                    last_pass[rank] = number, gradient(rank, number, values[rank][parameter])
                of_tensor = last_pass[rank][1][ref.start : ref.stop]
                targets[0][:] = targets[0] + of_tensor if op.adds else of_tensor
            case "local":
                kernel, times = KERNELS[op.kernel], plan.role_of[rank].times(op.name, turn)
                kernel.compute(views, targets, **kernel.at(op.arguments, times, rate(times), rank))
            case "collective":
                group = plan.group(op, rank)
                key = (op.name, turn, group)
                if key not in collectives_done:
                    collectives_done.add(key)
                    _collective(plan, {member: named[plan.role_of[member].name][op.name] for member in group}, values)
            case "send":
                sent[rank, op.to, op.channel, op.rail, op.tag].append([view.copy() for view in views])
            case "reply":
                to = source_of[rank, turn, op.to]
                sent[rank, to, op.channel, 0, op.tag].append([view.copy() for view in views])
            case "recv" | "recv_any":
                source = -1 if event.source is None else event.source
                source_of[rank, turn, op.name] = source
                message = sent[source, rank, op.channel, getattr(op, "rail", 0), op.tag].popleft()
                for target, value in zip(targets, message, strict=True):
                    target[:] = value
            case "shared_read":
                targets[0][:] = views[0]
            case "shared_add":
                targets[0] += op.scale * views[0]
    return values


def _initial_values(
    plan: Plan, initial: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]], dtype: str | None
) -> list[dict[str, np.ndarray]]:
    """Buffers of every rank before the first turn; all ranks have the same array of a shared buffer."""
    shared: dict[str, np.ndarray] = {}
    values: list[dict[str, np.ndarray]] = []
    for rank in range(plan.ranks):
        first_values = initial if isinstance(initial, Mapping) else initial[rank]
        buffers = {}
        for buffer in plan.buffers:
            kind = array_type(dtype if dtype and buffer.dtype.startswith(("float", "bfloat")) else buffer.dtype)
            if buffer.shared and buffer.name in shared:
                buffers[buffer.name] = shared[buffer.name]
                continue
            array = np.zeros(plan.shards.elements(buffer.name, rank), kind)
            if buffer.name in first_values:
                array[:] = of_rank(plan, buffer, rank, first_values[buffer.name])
            buffers[buffer.name] = array
            if buffer.shared:
                shared[buffer.name] = array
        values.append(buffers)
    return values


def of_rank(plan: Plan, buffer: Buffer, rank: int, values: np.ndarray) -> np.ndarray:
    """What a rank has of a buffer, of its values as a whole or of the rank's own alone."""
    if not buffer.mine or len(values) != buffer.elements:
        return values
    return np.concatenate([values[held.start : held.stop] for held in plan.shards.held(buffer.name, rank)])


def refuse_bytes(plan: Plan) -> None:
    """Raises InputError for a plan of bytes of an unknown type: it can be planned and simulated only."""
    for buffer in plan.buffers:
        if buffer.role in KEYED and buffer.dtype == BYTES:
            raise InputError(
                f"plan {plan.name!r}: its {buffer.role} is {BYTES}, bytes of a type that is not known: give the layers "
                "of the workload sizes that are whole elements of their dtype"
            )


def array_type(dtype: str) -> np.dtype[Any]:
    """NumPy's type of that name; bfloat16 is none of NumPy's own."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def _view(plan: Plan, buffers: dict[str, np.ndarray], ref: Ref, rank: int) -> np.ndarray:
    start, stop = plan.shards.place(ref, rank)
    return buffers[ref.buffer][start:stop]


def _collective(plan: Plan, ops: Mapping[int, Collective], values: list[dict[str, np.ndarray]]) -> None:
    """`ops`: the operation as each rank of the group has it, in order; buffers may differ."""
    (op, *_), group = ops.values(), list(ops)
    for number in range(len(op.writes)):
        sources, targets = ([getattr(ops[rank], side)[number] for rank in group] for side in ("reads", "writes"))
        inputs = [_view(plan, values[rank], ref, rank) for rank, ref in zip(group, sources, strict=True)]
        outputs = [_view(plan, values[rank], ref, rank) for rank, ref in zip(group, targets, strict=True)]
        pieces = [piece(0, len(inputs[0]), i, len(group)) for i in range(len(group))]
        match op.kind:
            case "all_reduce":
                total = _sum(inputs, op)
                for output in outputs:
                    output[:] = total
            case "reduce_scatter":
                total = _sum(inputs, op)
                for output, (start, stop) in zip(outputs, pieces, strict=True):
                    output[start:stop] = total[start:stop]
            case "all_gather":
                whole = np.concatenate([part[start:stop] for part, (start, stop) in zip(inputs, pieces, strict=True)])
                for output in outputs:
                    output[:] = whole
            case "all_to_all":
                whole = np.concatenate(inputs)
                for place, output in enumerate(outputs):
                    output[:] = whole.reshape(len(group), len(group), -1)[:, place].ravel()
            case "reduce":
                outputs[group.index(plan.root(op, group[0]))][:] = _sum(inputs, op)
            case "broadcast":
                root = inputs[group.index(plan.root(op, group[0]))].copy()
                for output in outputs:
                    output[:] = root


def _sum(inputs: list[np.ndarray], op: Collective) -> np.ndarray:
    if collectives.in_memory(op.algorithm):
        return _sum_by_rounds(inputs, op)
    total = inputs[0].copy()
    for value in inputs[1:]:
        total += value
    return total


def _sum_by_rounds(inputs: list[np.ndarray], op: Collective) -> np.ndarray:
    """What the rounds that add leave on the root; messages are not cut."""
    values = [value.copy() for value in inputs]
    for step in collectives.rounds(op.algorithm, shape_of(op, len(inputs)), op.root, REDUCE):
        for source, destination in zip(step.source, step.destination, strict=True):
            values[destination] += values[source]
    return values[op.root]
