"""Plans of methods of their own for a few layers in float64, and what their values must be, by plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gradsync import optimizers, updates
from gradsync.collectives import NATIVE
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from tiny_plans import SIZES, pull, start
from tiny_workloads import workload

LR, RHO, MOMENTUM = 0.125, 0.5, 0.75
PERIOD, OUTER_LR, OUTER_MOMENTUM = 3, 0.625, 0.875
LOCAL = ("local_sgd", "post_local_sgd")
ELEMENTS = sum(SIZES)
WHOLE = (Message(0, len(SIZES) - 1),)
Ends = tuple[np.ndarray, list[np.ndarray]]  # the centre, and the parameters of each worker


def load(update: float = 0.0) -> Workload:
    return workload([8 * size for size in SIZES], [1.0, 2.0, 3.0, 4.0], forward=2.0, update=update, dtype="float64")


def planned(method: str, ranks: int, optimizer: str = "", algorithm: str = NATIVE, **options: Any) -> Plan:
    """The plan of a method; options that it doesn't have are left out. Local steps have the default `inner`."""
    settings = {"rho": RHO, "momentum": MOMENTUM, "period": PERIOD, "outer_lr": OUTER_LR} | options
    settings.setdefault("outer_momentum", OUTER_MOMENTUM)
    known = {key: value for key, value in settings.items() if key in updates.options(method)}
    inner = optimizer or (inner_of(method) if updates.steps(method) else "sgd")
    applies = optimizers.get(
        inner, lr=LR, **({"momentum": MOMENTUM} if updates.steps(method) and inner == "sgd" else {})
    )
    travels = {} if algorithm == NATIVE else {"algorithm": algorithm, "shape": (ranks,)}
    return updates.plan(method, method, load(), WHOLE, ranks, optimizer=applies, **travels, **known)


def inner_of(method: str) -> str:
    """The optimizer of local steps in the method's paper."""
    return "adamw" if method == "diloco" else "sgd"


def local(method: str, ranks: int, turns: int, inner: str = "", period: int = PERIOD) -> Ends:
    """Local steps and what follows them, by optimizers of torch; the centre is None of what has none."""
    inner = inner or inner_of(method)
    of_torch = {
        "sgd": lambda w: torch.optim.SGD([w], lr=LR, momentum=MOMENTUM),
        "adamw": lambda w: torch.optim.AdamW([w], lr=LR, weight_decay=0.0),
    }[inner]
    parameters = [torch.from_numpy(start(ELEMENTS)).requires_grad_() for _ in range(ranks)]
    steps = [of_torch(parameter) for parameter in parameters]
    centre = torch.from_numpy(start(ELEMENTS)).requires_grad_()
    outer = torch.optim.SGD([centre], lr=OUTER_LR, momentum=OUTER_MOMENTUM, nesterov=True)
    for turn in range(turns):
        for number in range(turn * period, (turn + 1) * period):
            for rank, (parameter, step) in enumerate(zip(parameters, steps, strict=True)):
                parameter.grad = torch.from_numpy(pull(rank, number, parameter.detach().numpy()))
                step.step()
        mean = torch.stack([parameter.detach() for parameter in parameters]).mean(0)
        if method == "diloco":
            centre.grad = centre.detach() - mean
            outer.step()
            mean = centre.detach()
        for parameter in parameters:
            parameter.data.copy_(mean)
    return centre.detach().numpy(), [parameter.detach().numpy() for parameter in parameters]


def synchronous(ranks: tuple[int, ...], turns: int) -> Ends:
    """Sync EASGD of these ranks as workers: Eq. 1 and 2, both with the pair before the update."""
    centre, parameters = start(ELEMENTS), [start(ELEMENTS) for _ in ranks]
    for turn in range(turns):
        gradients = [pull(rank, turn, parameter) for rank, parameter in zip(ranks, parameters, strict=True)]
        moved = centre + LR * RHO * np.sum([parameter - centre for parameter in parameters], axis=0)
        parameters = [w - LR * (g + RHO * (w - centre)) for w, g in zip(parameters, gradients, strict=True)]
        centre = moved
    return centre, parameters


def round_robin(workers: int, turns: int) -> Ends:
    """Original EASGD: one worker after the other, ranks from 1 on."""
    return served([rank for _ in range(turns) for rank in range(1, workers + 1)])


def served(order: Sequence[int], momentum: float = 0.0) -> Ends:
    """Elastic exchanges of the master with the ranks in `order`; parameters are those of the ranks, in order."""
    centre = start(ELEMENTS)
    parameters = {rank: start(ELEMENTS) for rank in sorted(set(order))}
    velocities = {rank: np.zeros(ELEMENTS) for rank in parameters}
    turns = dict.fromkeys(parameters, 0)
    for rank in order:
        w, c = parameters[rank], centre
        velocities[rank] = momentum * velocities[rank] + pull(rank, turns[rank], w)
        centre = c + LR * RHO * (w - c)
        parameters[rank] = w - LR * (velocities[rank] + RHO * (w - c))
        turns[rank] += 1
    return centre, list(parameters.values())


def server(order: Sequence[int], momentum: float = 0.0) -> np.ndarray:
    """A server's parameters after gradients from the ranks in `order`, each of the parameters it got last."""
    parameter, velocity = start(ELEMENTS), np.zeros(ELEMENTS)
    held, turns = dict.fromkeys(order, parameter), dict.fromkeys(order, 0)
    for rank in order:
        velocity = momentum * velocity + pull(rank, turns[rank], held[rank])
        held[rank] = parameter = parameter - LR * velocity
        turns[rank] += 1
    return parameter


def hogwild(method: str, workers: int, turns: int) -> Ends:
    """Workers that share memory, each in its turn, so that nothing of one happens within what another does.

    At first each reads the centre. Then each in turn ends an iteration and reads the centre for its next one, unless
    that was its last.
    """
    centre = start(ELEMENTS)
    parameters = [start(ELEMENTS) for _ in range(workers)]
    seen = [start(ELEMENTS) for _ in range(workers)]
    for turn in range(turns):
        for rank in range(workers):
            gradient, w = pull(rank, turn, parameters[rank]), parameters[rank]
            if method == "hogwild_sgd":
                centre = centre - LR * gradient
                parameters[rank] = centre if turn + 1 < turns else w
                continue
            parameters[rank] = w = w - LR * (gradient + RHO * (w - seen[rank]))
            if turn + 1 < turns:
                seen[rank] = centre
                centre = centre + LR * RHO * (w - centre)
    return centre, parameters
