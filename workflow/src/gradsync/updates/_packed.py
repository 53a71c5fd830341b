"""What methods that exchange whole parameters have in common: one packed message, a worker's passes, rates.

Of the settings of a step they take the learning rate alone, unless their steps are an optimizer's; momentum is an
option of the methods that have it. All
layers travel in one message (the packed layout of the SC17 paper, Section 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradsync.collectives import NATIVE, REDUCE, refuse
from gradsync.errors import InputError
from gradsync.optimizers import Optimizer
from gradsync.plan import Buffer, Need, Plan, Ready, Ref, Role, Tensor
from gradsync.plan.workload import Workload
from gradsync.schedules import DEFAULT_LANE, Message
from gradsync.updates._passes import backward, forward, laid_out

NETWORK = DEFAULT_LANE
MOMENTUM = 0.9  # of methods with momentum, as the paper's rule of thumb has it
RHO = 0.5  # of elastic updates, unless an option says otherwise; the papers leave it open


class Packed:
    """The parts that the plans of a method are made of; each buffer is one range of all tensors.

    A method that reduces to rank 0 and broadcasts from there says how an algorithm sees the ranks (`rooted`, a shape).
    Raises InputError for what the method can't be: of several messages, of a described collective that it doesn't have,
    with too few ranks or, if it has an update rule of its own (`own_rule`), of an optimizer other than SGD.
    """

    def __init__(
        self,
        name: str,
        workload: Workload,
        messages: tuple[Message, ...],
        ranks: int,
        algorithm: str,
        optimizer: Optimizer,
        masters: int = 0,
        *,
        own_rule: bool = True,
        rooted: tuple[int, ...] | None = None,
    ):
        self.name, self.ranks, self.unit = name, ranks, workload.unit
        self.tensors = laid_out(workload)
        if len(messages) != 1 or messages[0][:2] != (0, len(self.tensors) - 1) or messages[0].part != (0, 1):
            raise InputError(f"plan {name!r}: its parameters travel in one message, all layers packed: schedule single")
        self.algorithm, self.shape = algorithm, rooted or ()
        if algorithm != NATIVE and rooted is None:
            raise InputError(f"plan {name!r}: collective {algorithm!r} sums gradients, and none are summed here")
        if algorithm != NATIVE:
            refuse(algorithm, self.shape or (ranks,), REDUCE)
        if ranks <= masters:
            raise InputError(f"plan {name!r}: {ranks} rank(s), of which one is the master: at least 2")
        if own_rule and (optimizer.name != "sgd" or optimizer.arguments.get("weight_decay")):
            raise InputError(
                f"plan {name!r} has an update rule of its own, which takes the learning rate alone: it goes with "
                "optimizer sgd without weight decay"
            )
        self.workers = tuple(range(masters, ranks))
        self.lr = optimizer.arguments["lr"]

    def all_of(self, buffer: str) -> Ref:
        """Every element of a buffer."""
        return Ref(buffer, 0, self.tensors[-1].stop)

    def passes(self, *, after: tuple[str, ...] = (), after_previous: tuple[str, ...] = ()) -> list[Need | Ready]:
        """Forward and backward of a worker; the lane of computation goes on after its last update by itself."""
        need = forward(self.tensors[-1].stop, after_previous)
        readies = backward(self.tensors, (), self.ranks, NATIVE, ())
        return [Need(name=need.name, reads=need.reads, after=after, after_previous=after_previous), *readies]

    @property
    def computed(self) -> str:
        """The last operation of `passes`."""
        return ready_of(self.tensors[-1])

    def plan(self, roles: Sequence[Role], *more: str, shared: bool = False) -> Plan:
        """The plan of these roles; `more` names buffers beside gradient and parameter, `shared` is the centre's."""
        buffers = tuple(
            Buffer(
                key,
                self.tensors[-1].stop,
                self.unit,
                shared=shared and key == "centre",
                role=ROLES.get(key, "scratch"),
            )
            for key in ("gradient", "parameter", *more)
        )
        present = tuple(role for role in roles if role.ranks)
        return Plan(name=self.name, ranks=self.ranks, tensors=self.tensors, buffers=buffers, roles=present)


ROLES: Mapping[str, Any] = {key: key for key in ("gradient", "parameter", "centre", "momentum")}


def ready_of(tensor: Tensor) -> str:
    """The operation that makes the gradient of a tensor ready."""
    return f"ready:{tensor.name}"


def elastic(packed: Packed, rho: float) -> dict[str, float]:
    """The arguments of an elastic update; raises InputError unless 0 < lr rho < 1, or a pull overshoots."""
    if not 0 < packed.lr * rho < 1:
        raise InputError(
            f"plan {packed.name!r}: a pull of lr x rho = {packed.lr:g} x {rho:g} does not settle: above 0 and below 1"
        )
    return {"lr": packed.lr, "rho": rho}


def with_momentum(packed: Packed, rates: dict[str, float], momentum: float) -> tuple[dict[str, float], tuple[str, ...]]:
    """Arguments of an update, and the buffers that it keeps; raises InputError unless 0 <= momentum < 1."""
    if not 0 <= momentum < 1:
        raise InputError(f"plan {packed.name!r}: a momentum of {momentum:g}: at least 0 and below 1")
    return ({**rates, "momentum": momentum}, ("momentum",)) if momentum else (rates, ())
