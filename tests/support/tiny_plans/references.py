"""What the values of tiny plans must be, by plain loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiny_plans.parts import DECAY, LR, RHO, TRUST, pull, start


def synchronous_reference(
    ranks: int, elements: int, turns: int, steps_a_turn: int = 1, first_rank: int = 0
) -> np.ndarray:
    parameter = start(elements)
    members = range(first_rank, first_rank + ranks)
    for turn in range(turns):
        for number in range(turn * steps_a_turn, (turn + 1) * steps_a_turn):
            parameter = parameter - LR * np.mean([pull(rank, number, parameter) for rank in members], axis=0)
    return parameter


def server_reference(order: Sequence[int], elements: int) -> np.ndarray:
    """The server's parameters after gradients from the ranks in `order`."""
    parameter = start(elements)
    held = dict.fromkeys(order, parameter)
    turns = dict.fromkeys(order, 0)
    for rank in order:
        parameter = parameter - LR * pull(rank, turns[rank], held[rank])
        held[rank] = parameter
        turns[rank] += 1
    return parameter


def easgd_reference(workers: int, elements: int, turns: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """(centre, parameters of each worker)."""
    centre = start(elements)
    parameters = [start(elements) for _ in range(workers)]
    for turn in range(turns):
        for i in range(workers):
            gradient, centre_then = pull(i + 1, turn, parameters[i]), centre
            centre = centre + LR * RHO * (parameters[i] - centre)
            parameters[i] = parameters[i] - LR * (gradient + RHO * (parameters[i] - centre_then))
    return centre, parameters


def lars_reference(ranks: int, elements: int, turns: int) -> np.ndarray:
    parameter = start(ranks * elements)
    for turn in range(turns):
        gradient = np.mean([pull(rank, turn, parameter) for rank in range(ranks)], axis=0)
        for i in range(ranks):
            part = slice(i * elements, (i + 1) * elements)
            w, g = parameter[part], gradient[part]
            size, steep = np.linalg.norm(w), np.linalg.norm(g)
            parameter[part] = w - LR * TRUST * size / (steep + DECAY * size) * (g + DECAY * w)
    return parameter
