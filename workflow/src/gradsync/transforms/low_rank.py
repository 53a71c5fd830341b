"""Low-rank messages: matrices of gradients travel as two thin factors, each summed by an all-reduce (PowerSGD).

A message becomes, on its own lane,

    left      P = M Q of each of its matrices
    pack      copies of its tensors that travel whole, behind all P
    sum_left  their sum over the ranks
    right     orthonormal P; Q = M^T P
    sum_right the sum of all Q
    unpack    the sums of whole tensors, back in their place
    decode    P Q^T in place of the gradients; M - P Q^T, of the mean, in place of the residual

A message without a matrix travels as it is. Q of all matrices lie in backward order, whatever the messages are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gradsync.collectives import ALL_REDUCE
from gradsync.compressors import powersgd
from gradsync.compressors.powersgd import Matrix
from gradsync.errors import InputError
from gradsync.plan import BYTES, WORLD, Buffer, Collective, Local, Plan, Ref, Role, Tensor
from gradsync.plan.workload import Workload
from gradsync.transforms._edits import Body, named, operations, waiting, with_bodies, with_buffer
from gradsync.transforms._sparse_messages import RESIDUAL

TRANSFORM = "low-rank compression"
LEFT, RIGHT = "left", "right"  # buffers of P, with what travels whole, and of Q


class LowRank(NamedTuple):
    """How each tensor is sent, in backward order (None: whole); with `feedback` what isn't sent stays in a residual.

    `seed`: of what the first Q are drawn.
    """

    compressor: str
    rank: int
    matrices: tuple[Matrix | None, ...]
    feedback: bool = True
    seed: int = 0

    def describe(self) -> str:
        """One line for people."""
        kept = "error feedback" if self.feedback else "no error feedback"
        return f"{self.compressor}, rank {self.rank}, seed {self.seed}, {kept}"


class _Part(NamedTuple):
    """A tensor of a message: where it lies, and the places of its factors, or of its copy in `left` alone."""

    tensor: Tensor
    left: Ref
    right: Ref | None


def of_workload(compressor: str, workload: Workload, *, feedback: bool, rank: int, seed: int) -> LowRank:
    """How the tensors of a workload are sent; raises InputError for one whose shape is not known."""
    if unknown := [layer.name for layer in workload.layers if layer.shape is None]:
        raise InputError(
            f"workload {workload.name!r}: compressor {compressor!r} needs shapes, and layer {unknown[0]!r} has none: "
            'give each layer its "shape" (gradsync measure layers does)'
        )
    matrices = tuple(powersgd.matrix(layer.shape or (), rank) for layer in workload.layers)
    return LowRank(compressor, rank, matrices, feedback, seed)


def factor(plan: Plan, low_rank: LowRank) -> Plan:
    """The plan whose matrices of gradients travel as factors.

    Raises InputError for a plan whose gradients are not summed by all-reduces over all of its ranks, each of whole
    tensors that no other message has, or are of an unknown type.
    """
    holding = plan.holding("gradient")
    if holding is None or plan.buffer[holding].dtype == BYTES:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs gradients of a known type")
    if plan.axes:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan without axes")
    if plan.holding("scaler") is not None:
        problem = "a plan without a loss scale, which makes gradients that are infinite now and then"
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs {problem}")
    elements = [tensor.stop - tensor.start for tensor in plan.tensors]
    given = [each and each.rows * each.columns for each in low_rank.matrices]
    if len(given) != len(elements) or any(each not in (None, own) for each, own in zip(given, elements, strict=True)):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM}: its tensors are not those whose shapes are given")
    of_role = {role.name: _messages(plan, role, holding) for role in plan.roles}
    if not any(of_role.values()):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs sums of gradients; it has no such message")
    ranges = [op.writes[0] for ops in of_role.values() for op in ops.values()]
    for tensor, each in zip(plan.tensors, low_rank.matrices, strict=True):
        if each and not any(ref.start <= tensor.start and tensor.stop <= ref.stop for ref in ranges):
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: matrix {tensor.name!r} is in no message of gradients")
    parts, left = _laid_out(plan, of_role, low_rank)
    gradient = plan.buffer[holding]
    if any(parts.values()):
        buffers = [
            Buffer(LEFT, left, gradient.dtype),
            Buffer(RIGHT, sum(each.right for each in low_rank.matrices if each), gradient.dtype, role="state"),
        ]
        if low_rank.feedback:
            buffers.append(Buffer(RESIDUAL, gradient.elements, gradient.dtype, role="residual"))
        for buffer in buffers:
            plan = with_buffer(plan, buffer, TRANSFORM)

    def edited(role: Role, body: Body) -> Iterator[Any]:
        ours = {name: named("decode", name) for name in of_role[role.name] if parts[name]}
        for op in body:
            carried = _carried(op, parts[op.name], low_rank, plan.ranks) if op.name in ours else iter((_of_part(op),))
            yield from (waiting(each, ours) for each in carried)

    return with_bodies(plan, edited)


def _messages(plan: Plan, role: Role, gradient: str) -> dict[str, Collective]:
    """Name -> message of gradients; raises InputError for one that is no sum of whole tensors."""
    found: dict[str, Collective] = {}
    end = 0
    edges = {0, *(tensor.stop for tensor in plan.tensors)}
    of_gradients = [
        op
        for op in operations(role.body)
        if op.verb not in ("ready", "local", "repeat")
        and any(ref.buffer == gradient for ref in (*op.reads, *op.writes))
    ]
    for op in sorted(of_gradients, key=lambda op: op.writes):
        summed = isinstance(op, Collective) and op.kind == ALL_REDUCE and op.reads == op.writes and len(op.writes) == 1
        if not summed or op.over != WORLD or op.ranks or op.writes[0].mine:
            raise InputError(
                f"plan {plan.name!r}: {TRANSFORM}: {op.name!r} is no all-reduce of one range of gradients over all "
                "ranks: choose another update"
            )
        (ref,) = op.writes
        if ref.start < end:
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: gradients of {op.name!r} travel in another message too")
        if not {ref.start, ref.stop} <= edges:
            raise InputError(
                f"plan {plan.name!r}: {TRANSFORM}: {op.name!r} has a part of a tensor, and a matrix is factored whole: "
                "choose a schedule that cuts no tensor"
            )
        end = ref.stop
        found[op.name] = op
    return found


def _laid_out(
    plan: Plan, of_role: dict[str, dict[str, Collective]], low_rank: LowRank
) -> tuple[dict[str, tuple[_Part, ...]], int]:
    """Message -> its tensors, none if it travels as it is; and how many elements the buffer of P has.

    Messages of equal name are one collective of several roles, and lie in the same place.
    """
    rights: dict[str, Ref] = {}
    place = 0
    for tensor, each in zip(plan.tensors, low_rank.matrices, strict=True):
        if each:
            rights[tensor.name] = Ref(RIGHT, place, place + each.right)
            place += each.right
    of_tensor = dict(zip((tensor.name for tensor in plan.tensors), low_rank.matrices, strict=True))
    parts: dict[str, tuple[_Part, ...]] = {}
    length = 0
    for ops in of_role.values():
        for name, op in ops.items():
            if name in parts:
                continue
            (ref,) = op.writes
            inside = [each for each in plan.tensors if ref.start <= each.start and each.stop <= ref.stop]
            inside.sort(key=lambda tensor: of_tensor[tensor.name] is None)  # matrices first
            laid: list[_Part] = []
            if of_tensor[inside[0].name]:
                for tensor in inside:
                    matrix = of_tensor[tensor.name]
                    stop = length + (matrix.left if matrix else tensor.stop - tensor.start)
                    laid.append(_Part(tensor, Ref(LEFT, length, stop), rights.get(tensor.name)))
                    length = stop
            parts[name] = tuple(laid)
    return parts, length


def _carried(message: Collective, parts: Sequence[_Part], low_rank: LowRank, ranks: int) -> Iterator[Any]:
    """What carries a message instead of one all-reduce; the last operation has the name of `decode`."""
    (whole,) = message.writes
    matrices = [each for each in parts if each.right is not None]
    others = [each for each in parts if each.right is None]
    rights = [each.right for each in matrices if each.right is not None]
    gradients = [whole._replace(start=each.tensor.start, stop=each.tensor.stop) for each in matrices]
    residuals = [ref._replace(buffer=RESIDUAL) for ref in gradients] if low_rank.feedback else []
    lefts = [each.left for each in matrices]

    def local(verb: str, kernel: str, reads: Sequence[Ref], *writes: Sequence[Ref], **arguments: float) -> Local:
        return Local(
            name=named(verb, message.name),
            lane=message.lane,
            kernel=kernel,
            arguments=arguments,
            reads=tuple(reads),
            writes=tuple(ref for of_one in zip(*filter(None, writes), strict=True) for ref in of_one),
        )

    def summed(verb: str, ref: Ref) -> Collective:
        name = named(verb, message.name)
        return dataclasses.replace(message, name=name, after=(), after_previous=(), reads=(ref,), writes=(ref,))

    def copies(verb: str, out: bool) -> Iterator[Local]:
        for each in others:
            own, copy = whole._replace(start=each.tensor.start, stop=each.tensor.stop), each.left
            moved = local(verb, "copy", (own,) if out else (copy,), (copy,) if out else (own,))
            yield dataclasses.replace(moved, name=f"{moved.name}:{each.tensor.name}")

    draws = {"seed": float(low_rank.seed), "first": float(rights[0].start)}
    first = local("left", "powersgd_left", gradients, lefts, rights, residuals, **draws)
    yield dataclasses.replace(first, after=message.after, after_previous=message.after_previous)
    yield from copies("pack", out=True)
    yield summed("sum_left", Ref(LEFT, parts[0].left.start, parts[-1].left.stop))
    yield local("right", "powersgd_right", residuals or gradients, lefts, rights)
    yield summed("sum_right", Ref(RIGHT, rights[0].start, rights[-1].stop))
    yield from copies("unpack", out=False)
    last = local("decode", "powersgd_decode", lefts, rights, gradients, residuals, terms=float(ranks))
    yield dataclasses.replace(last, postcondition="sparse_sum")


def _of_part(op: Any) -> Any:
    """What requires a sum of gradients, requires one of which a part was sent."""
    if isinstance(op, Local) and op.requires == "sum":
        return dataclasses.replace(op, requires="sparse_sum")
    return op
