"""Learning-rate schedules are torch's, with warm-up before them, and refused by name if there is no such."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as of_torch

from gradsync import learning_rates
from gradsync.configuration.training import Training
from gradsync.errors import InputError
from gradsync.learning_rates import LearningRate

TURNS = 12
Made = Callable[[torch.optim.Optimizer, int], of_torch.LRScheduler]


def inverse_sqrt(warmup: int) -> Callable[[int], float]:
    """The Transformer's (Vaswani et al., Eq. 3) over its highest rate, `done` iterations after the warm-up."""
    steps = max(1, warmup)
    return lambda done: min((warmup + done + 1) ** -0.5, (warmup + done + 1) * steps**-1.5) / steps**-0.5


SCHEDULES: dict[str, Made] = {
    "constant": lambda optimizer, turns: of_torch.ConstantLR(optimizer, factor=1.0),
    "linear": lambda optimizer, turns: of_torch.LinearLR(optimizer, 1.0, 0.0, turns),
    "cosine": lambda optimizer, turns: of_torch.CosineAnnealingLR(optimizer, turns),
    "step:4": lambda optimizer, turns: of_torch.StepLR(optimizer, 4),
    "step:3,0.5": lambda optimizer, turns: of_torch.StepLR(optimizer, 3, 0.5),
    "inverse_sqrt": lambda optimizer, turns: of_torch.LambdaLR(optimizer, inverse_sqrt(TURNS - turns)),
}


def rates(make: Made, turns: int, warmup: int) -> list[float]:
    """What torch's schedulers make of a rate of 1, iteration by iteration."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, turns - warmup)
    if warmup:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        before = of_torch.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
        scheduler = of_torch.SequentialLR(optimizer, [before, make(optimizer, turns - warmup)], [warmup])
    values = []
    for _ in range(turns):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def test_every_schedule_is_compared():
    assert {text.partition(":")[0] for text in SCHEDULES} == {*learning_rates.NAMES}


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("warmup", [0, 2, 5])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_is_torchs(schedule, warmup):
    ours = LearningRate(schedule, warmup, TURNS)
    expected = rates(SCHEDULES[schedule], TURNS, warmup)
    assert [ours(turn) for turn in range(TURNS)] == pytest.approx(expected, abs=1e-12)
    assert ours.constant == (schedule == "constant" and not warmup)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(0, 30), st.integers(1, 40), st.integers(0, 200))
def test_a_factor_is_from_0_to_1_and_falls_once_warm(schedule, warmup, iterations, turn):
    rate = LearningRate(schedule, warmup, iterations)
    assert 0 <= rate(turn) <= 1
    assert rate(turn + 1) >= rate(turn) if turn + 1 < warmup else rate(turn + 1) <= max(rate(turn), 1.0)
    if turn >= warmup:
        assert rate(turn + 1) <= rate(turn) + 1e-15


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cosin", "learning-rate schedule 'cosin' does not exist; did you mean cosine"),
        ("linear:3", "linear takes no numbers"),
        ("step", "give step:EVERY or step:EVERY,FACTOR"),
        ("step:0", "at least 1 iteration"),
        ("step:2,nan", "a factor above 0"),
        ("step:2,0", "a factor above 0"),
        ("step:x", "give step:EVERY"),
    ],
)
def test_what_is_no_schedule_is_refused(text, problem):
    with pytest.raises(InputError, match=f"--lr-schedule.*{problem}"):
        learning_rates.parse(text)


def test_warm_up_ends_before_the_training_does():
    options = Training(warmup_iterations=4)
    options.refuse_rate(6)
    assert options.learning_rate(6) == LearningRate("constant", 4, 6)
    with pytest.raises(InputError, match="--warmup-iterations 4: a training has 4 iterations"):
        options.refuse_rate(4)
    with pytest.raises(InputError, match=r"--target-accuracy 1\.5: a share"):
        Training(target_accuracy=1.5).refuse_rate(100)
    with pytest.raises(InputError, match="--lr 0: rates of stages are multiples of it"):
        Training(lr=0.0, recipe=("epochs=1,lr=0.1",)).refuse_rate(100)
