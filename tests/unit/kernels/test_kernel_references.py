"""Every kernel against a reference of its own: torch's optimizers, or its formula element by element.

The oracle and the executor share a kernel's meaning, so that neither of them could find a wrong one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from code_references import (
    Arrays,
    Case,
    N,
    decode_qsgd,
    decode_sign,
    decode_sum,
    drawn,
    encode,
    encode_exact_topk,
    encode_qsgd,
    encode_sign,
    powersgd_decode,
    powersgd_left,
    powersgd_right,
)
from gradsync import compressors
from gradsync.kernels import KERNELS
from gradsync.runtime.kernels import EXECUTED


def torch_sgd(gradient: np.ndarray, parameter: np.ndarray, velocity: np.ndarray, lr: float, momentum: float) -> Arrays:
    """A step of torch.optim.SGD that goes on from this velocity."""
    weights = torch.nn.Parameter(torch.from_numpy(parameter.copy()))
    optimizer = torch.optim.SGD([weights], lr=lr, momentum=momentum)
    optimizer.state[weights]["momentum_buffer"] = torch.from_numpy(velocity.copy())
    weights.grad = torch.from_numpy(gradient)
    optimizer.step()
    return [weights.detach().numpy(), optimizer.state[weights]["momentum_buffer"].numpy()]


def sgd() -> list[Case]:
    gradient, parameter, velocity = drawn(N), drawn(N, seed=1), drawn(N, seed=2)
    rates = {"lr": 0.3, "momentum": 0.9, "scale": 0.25}
    expected = torch_sgd(gradient * 0.25, parameter, velocity, 0.3, 0.9)
    norm = np.array([math.sqrt(sum(x * x for x in gradient))])
    clipped = torch.nn.Parameter(torch.zeros(N, dtype=torch.float64))
    clipped.grad = torch.from_numpy(gradient * 0.25)
    torch.nn.utils.clip_grad_norm_([clipped], 0.5)
    assert clipped.grad is not None
    cut = torch_sgd(clipped.grad.numpy(), parameter, velocity, 0.3, 0.9)
    return [
        ([gradient], [parameter, velocity], rates, expected),
        ([gradient, norm], [parameter, velocity], {**rates, "clip": 0.5}, cut),
        (
            [gradient],
            [parameter],
            {"lr": 0.3},
            [np.array([w - 0.3 * g for w, g in zip(parameter, gradient, strict=True)])],
        ),
    ]


def of_moments(of_torch: type[torch.optim.Optimizer], **decay: float) -> list[Case]:
    """Later steps of torch's optimizer, which goes on from moments that it is given; the fourth, and the first."""
    gradient, parameter = drawn(N), drawn(N, seed=1)
    first, second = drawn(N, seed=2), drawn(N, seed=3) ** 2
    rates = {"lr": 0.3, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, **decay}
    cases: list[Case] = []
    for turn in (0, 3):
        weights = torch.nn.Parameter(torch.from_numpy(parameter.copy()))
        optimizer = of_torch([weights], lr=0.3, betas=(0.8, 0.95), eps=1e-3, **decay)  # type: ignore[call-arg]
        kept = {"exp_avg": torch.from_numpy(first.copy()), "exp_avg_sq": torch.from_numpy(second.copy())}
        optimizer.state[weights].update(step=torch.tensor(float(turn)), **kept)
        weights.grad = torch.from_numpy(gradient * 0.25)
        optimizer.step()
        after = [weights.detach().numpy(), *(each.numpy() for each in kept.values())]
        cases.append(([gradient], [parameter, first, second], {**rates, "scale": 0.25, "turn": turn}, after))
    return cases


def adam() -> list[Case]:
    return [*of_moments(torch.optim.Adam), *of_moments(torch.optim.Adam, weight_decay=0.1)]


def adamw() -> list[Case]:
    decoupled = of_moments(torch.optim.AdamW, weight_decay=0.1)
    return [*of_moments(torch.optim.AdamW, weight_decay=0.0), *decoupled]


def sgd_scaled() -> list[Case]:
    gradient, parameter, velocity = drawn(N), drawn(N, seed=1), drawn(N, seed=2)
    rates = {"lr": 0.3, "momentum": 0.9, "scale": 0.5, "growth_interval": 2.0}
    expected = torch_sgd(gradient * 0.5, parameter, velocity, 0.3, 0.9)
    spoilt = gradient.copy() * 8
    spoilt[3] = np.inf
    return [
        ([gradient * 8], [parameter, velocity, np.array([8.0, 0, 4])], rates, [*expected, np.array([8.0, 1, 4])]),
        ([gradient * 8], [parameter, velocity, np.array([8.0, 1, 4])], rates, [*expected, np.array([16.0, 0, 4])]),
        ([spoilt], [parameter, velocity, np.array([8.0, 1, 4])], rates, [parameter, velocity, np.array([4.0, 0, 5])]),
    ]


def unscaled(update: Callable[[], list[Case]]) -> list[Case]:
    """The update's own cases under a loss scale of 8, after two steps that were skipped; and those that are skipped."""
    cases: list[Case] = []
    for reads, before, arguments, after in update():
        gradient, how = reads[0] * 8, dict(arguments)
        how |= {"turn": how["turn"] + 2} if "turn" in how else {}
        norm, scaler = np.array([math.sqrt(sum(x * x for x in gradient))]), np.array([8.0, 1, 2])
        cases.append(([gradient, norm, scaler], before, how, after))
        cases += [([gradient, np.array([bad]), scaler], before, how, before) for bad in (np.inf, np.nan)]
    return cases


def scaler() -> list[Case]:
    how = {"growth_interval": 2.0}
    good, norm = np.array([8.0, 0, 4]), np.array([3.0])
    return [
        ([norm], [good], how, [np.array([8.0, 1, 4])]),
        ([norm], [np.array([8.0, 1, 4])], how, [np.array([16.0, 0, 4])]),
        *(([np.array([bad])], [np.array([8.0, 1, 4])], how, [np.array([4.0, 0, 5])]) for bad in (np.inf, np.nan)),
    ]


def cast() -> list[Case]:
    values = drawn(N)
    narrow = np.array([np.float32(x) * np.float32(0.5) for x in values], np.float32)
    return [
        ([values], [np.zeros(N, np.float32)], {"scale": 0.5}, [narrow]),
        ([narrow], [np.zeros(N)], {}, [np.array([float(x) for x in narrow])]),
    ]


def add() -> list[Case]:
    one, other = drawn(N), drawn(N, seed=1)
    return [
        ([one], [other], {}, [np.array([x + y for x, y in zip(one, other, strict=True)])]),
        ([one], [other], {"scale": -0.5}, [np.array([y - 0.5 * x for x, y in zip(one, other, strict=True)])]),
    ]


def copy() -> list[Case]:
    return [([drawn(N)], [drawn(N, seed=1)], {}, [drawn(N)])]


def fill() -> list[Case]:
    return [
        ([], [drawn(N), drawn(2)], {}, [np.zeros(N), np.zeros(2)]),
        ([], [drawn(N)], {"value": -2.5}, [np.array([-2.5] * N)]),
    ]


def join() -> list[Case]:
    return [([drawn(N)], [drawn(N, seed=1)], {}, [drawn(N, seed=1)])]


def norm() -> list[Case]:
    parts = [drawn(N), drawn(3, seed=1)]
    return [(parts, [np.zeros(2)], {}, [np.array([math.sqrt(sum(x * x for x in part)) for part in parts])])]


def squares() -> list[Case]:
    values = drawn(N)
    return [
        ([values], [np.zeros(1)], {}, [np.array([math.fsum(x * x for x in values)])]),
        ([values[:0]], [np.ones(1)], {}, [np.zeros(1)]),
    ]


def root_of_sum() -> list[Case]:
    return [([np.array([4.0, 0.0, 12.0])], [np.zeros(1)], {}, [np.array([4.0])])]


def lars_ratios() -> list[Case]:
    gradient, parameter, second = drawn(N), drawn(N, seed=1), drawn(3, seed=3)
    how = {"trust": 0.02, "weight_decay": 0.1, "scale": 0.25}

    def ratio(parameter: np.ndarray, gradient: np.ndarray) -> float:
        size, steepness = (math.sqrt(sum(x * x for x in values)) for values in (parameter, gradient * 0.25))
        return 0.02 * size / (steepness + 0.1 * size)

    zero = np.zeros(N)  # a bias that begins at 0 is trained, at the plain rate
    one, other = ratio(parameter, gradient), ratio(second, 2 * second)
    return [
        ([parameter, gradient], [np.zeros(1)], how, [np.array([one])]),
        ([parameter, gradient, second, 2 * second], [np.zeros(2)], how, [np.array([one, other])]),
        ([zero, gradient, parameter, zero], [np.zeros(2)], how, [np.ones(2)]),
        ([], [np.zeros(0)], how, [np.zeros(0)]),  # a rank that has no tensor
    ]


def lars() -> list[Case]:
    gradient, parameter = drawn(N), drawn(N, seed=1)
    rates = {"lr": 0.4, "weight_decay": 0.1, "scale": 0.25}
    ratio, rate = np.array([0.05]), 0.4 * 0.05
    expected = np.array([w - rate * (0.25 * g + 0.1 * w) for w, g in zip(parameter, gradient, strict=True)])
    velocity, second = drawn(N, seed=2), drawn(3, seed=3)
    moved = [0.9 * v + w - e for v, w, e in zip(velocity, parameter, expected, strict=True)]
    rest = [w - 0.4 * 1.5 * (0.25 * w + 0.1 * w) for w in second]
    return [
        ([gradient, ratio], [parameter], rates, [expected]),
        ([gradient, ratio, second, np.array([1.5])], [parameter, second], rates, [expected, np.array(rest)]),
        (
            [gradient, ratio],
            [parameter, velocity],
            {**rates, "momentum": 0.9},
            [np.array([w - v for w, v in zip(parameter, moved, strict=True)]), np.array(moved)],
        ),
    ]


LAMB = {"beta1": 0.8, "beta2": 0.95, "eps": 0.01, "weight_decay": 0.1, "scale": 0.5, "turn": 3}


def lamb_step(gradient: float, parameter: float, first: float, second: float) -> tuple[float, float, float]:
    """(direction, first moment, second moment) of the fourth step."""
    first, second = 0.8 * first + 0.2 * 0.5 * gradient, 0.95 * second + 0.05 * (0.5 * gradient) ** 2
    mean, square = first / (1 - 0.8**4), second / (1 - 0.95**4)
    return mean / (math.sqrt(square) + 0.01) + 0.1 * parameter, first, second


def lamb_operands() -> Arrays:
    return [drawn(N), drawn(N, seed=1), drawn(N, seed=2), drawn(N, seed=3) ** 2]


def lamb() -> list[Case]:
    gradient, parameter, first, second = lamb_operands()
    steps = [lamb_step(*each) for each in zip(gradient, parameter, first, second, strict=True)]
    cases: list[Case] = []
    for ratio in (1.5, 1.0):
        ends = [(w - 0.4 * ratio * u, m, v) for w, (u, m, v) in zip(parameter, steps, strict=True)]
        state = [np.array(each) for each in zip(*ends, strict=True)]
        cases.append(([gradient, np.array([ratio])], [parameter, first, second], {"lr": 0.4, **LAMB}, state))
    return cases


def lamb_ratios() -> list[Case]:
    gradient, parameter, first, second = lamb_operands()
    steps = [lamb_step(*each)[0] for each in zip(gradient, parameter, first, second, strict=True)]
    size, moved_by = (math.sqrt(sum(x * x for x in each)) for each in (parameter, steps))
    zero, still = np.zeros(N), {**LAMB, "weight_decay": 0.0}
    return [
        ([parameter, gradient, first, second], [np.zeros(1)], LAMB, [np.array([size / moved_by])]),
        ([zero, gradient, first, second], [np.zeros(1)], LAMB, [np.ones(1)]),
        ([parameter, zero, zero, zero], [np.zeros(1)], still, [np.ones(1)]),  # it doesn't move
        ([], [np.zeros(0)], LAMB, [np.zeros(0)]),  # a rank that has no tensor
    ]


def elastic_worker() -> list[Case]:
    gradient, centre, parameter = drawn(N), drawn(N, seed=1), drawn(N, seed=2)
    rates = {"lr": 0.2, "rho": 0.7}
    expected = [w - 0.2 * (g + 0.7 * (w - c)) for g, c, w in zip(gradient, centre, parameter, strict=True)]
    velocity = drawn(N, seed=3)
    faster = [0.5 * v + g for v, g in zip(velocity, gradient, strict=True)]
    moved = [w - 0.2 * (v + 0.7 * (w - c)) for v, c, w in zip(faster, centre, parameter, strict=True)]
    return [
        ([gradient, centre], [parameter], rates, [np.array(expected)]),
        ([gradient, centre], [parameter, velocity], {**rates, "momentum": 0.5}, [np.array(moved), np.array(faster)]),
    ]


def elastic_centre() -> list[Case]:
    parameter, centre = drawn(N), drawn(N, seed=1)
    expected = [c + 0.2 * 0.7 * (w - c) for w, c in zip(parameter, centre, strict=True)]
    summed = [c + 0.2 * 0.7 * (w - 3 * c) for w, c in zip(parameter, centre, strict=True)]
    return [
        ([parameter], [centre], {"lr": 0.2, "rho": 0.7}, [np.array(expected)]),
        ([parameter], [centre], {"lr": 0.2, "rho": 0.7, "terms": 3.0}, [np.array(summed)]),
    ]


def average() -> list[Case]:
    summed = drawn(N)
    return [([summed], [drawn(N, seed=1)], {"terms": 3.0}, [np.array([s / 3 for s in summed])])]


def outer_nesterov() -> list[Case]:
    summed, centre, velocity = drawn(N), drawn(N, seed=1), drawn(N, seed=2)
    outer = [c - s / 3 for c, s in zip(centre, summed, strict=True)]
    faster = [0.5 * u + d for u, d in zip(velocity, outer, strict=True)]
    plain = np.array([c - 0.7 * d for c, d in zip(centre, outer, strict=True)])
    moved = np.array([c - 0.7 * (d + 0.5 * u) for c, d, u in zip(centre, outer, faster, strict=True)])
    rates = {"outer_lr": 0.7, "terms": 3.0}
    return [
        ([summed], [drawn(N, seed=3), centre.copy()], rates, [plain, plain]),
        (
            [summed],
            [drawn(N, seed=3), centre.copy(), velocity],
            {**rates, "outer_momentum": 0.5},
            [moved, moved, np.array(faster)],
        ),
    ]


def elastic_difference() -> list[Case]:
    parameter, centre = drawn(N), drawn(N, seed=1)
    expected = [0.2 * 0.7 * (w - c) for w, c in zip(parameter, centre, strict=True)]
    return [([parameter, centre], [np.zeros(N)], {"lr": 0.2, "rho": 0.7}, [np.array(expected)])]


def sgd_difference() -> list[Case]:
    gradient = drawn(N)
    return [([gradient], [np.zeros(N)], {"lr": 0.2}, [np.array([-0.2 * g for g in gradient])])]


REFERENCES: dict[str, Callable[[], list[Case]]] = {
    reference.__name__: reference
    for reference in (
        *(sgd, sgd_scaled, adam, adamw, cast, add, copy, fill, join, decode_sum, norm, lars, squares, root_of_sum),
        *(lars_ratios, lamb, lamb_ratios, elastic_worker, elastic_centre, elastic_difference, sgd_difference),
        *(powersgd_left, powersgd_right, powersgd_decode),
        *(average, outer_nesterov, scaler, encode_sign, decode_sign, encode_qsgd, decode_qsgd),
    )
}
REFERENCES |= {f"{update.__name__}_unscaled": functools.partial(unscaled, update) for update in (sgd, adam, adamw)}
REFERENCES |= {f"encode_{name}": functools.partial(encode, name) for name in compressors.selecting()}
REFERENCES["encode_exact_topk"] = encode_exact_topk


def test_every_kernel_has_a_reference():
    assert REFERENCES.keys() == KERNELS.keys()


@pytest.mark.parametrize("where", ["oracle", "executor"])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_kernel_is_its_reference(name, where):
    for reads, before, arguments, after in REFERENCES[name]():
        writes = [array.copy() for array in before]
        if where == "oracle":
            KERNELS[name].compute([array.copy() for array in reads], writes, **arguments)
        else:
            tensors = [torch.from_numpy(array) for array in writes]
            EXECUTED[name]([torch.from_numpy(array.copy()) for array in reads], tensors, **arguments)
        for written, expected in zip(writes, after, strict=True):
            enough = 1e-6 if written.dtype == np.float32 else 1e-12
            np.testing.assert_allclose(written, expected, rtol=enough, atol=enough)
