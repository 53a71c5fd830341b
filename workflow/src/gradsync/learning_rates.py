"""Learning-rate schedules: by which factor the rate of a plan's updates is multiplied in each iteration of a training.

They are no part of a plan, whose hash they leave as it is: whatever runs a plan is given a schedule beside it. Each is
one of torch.optim.lr_scheduler (inverse_sqrt: LambdaLR), from 1 down to 0 where it has an end:

    constant
    linear              LinearLR(start_factor=1, end_factor=0, total_iters)
    cosine              CosineAnnealingLR(T_max) (Loshchilov and Hutter, ICLR 2017, Eq. 5, without restarts)
    step:EVERY          StepLR(step_size, gamma=0.1): a tenth after EVERY iterations, a hundredth after as many more, ..
    step:EVERY,FACTOR   the same with another gamma
    inverse_sqrt        sqrt(N / t) in iteration t, counted from 1, after N of warm-up, with which it has the shape of
                        the Transformer's (Vaswani et al., NeurIPS 2017, Eq. 3); N = 1 without warm-up

Before it come iterations of warm-up, whose factors rise in equal steps to 1 (Goyal et al., "Accurate, Large Minibatch
SGD", 2017, Section 2.2): LinearLR(start_factor=1/N, total_iters=N-1), then the schedule, by SequentialLR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sqrt

from gradsync.errors import InputError
from gradsync.names import refuse_unknown, shown

Rate = Callable[[int], float]
"""Number of the iteration, from 0 -> the factor of the learning rate."""

CONSTANT = "constant"
NAMES = (CONSTANT, "linear", "cosine", "step", "inverse_sqrt")
STEP_FACTOR = 0.1  # torch's


@dataclass(frozen=True)
class LearningRate:
    """A schedule over so many iterations, the first `warmup` of which are warm-up; call it as a `Rate`.

    `stages` of a training have a factor of their own each: (its first iteration, factor), in order.
    """

    schedule: str = CONSTANT
    warmup: int = 0
    iterations: int = 1
    stages: tuple[tuple[int, float], ...] = ()

    def __call__(self, turn: int) -> float:
        """The factor in an iteration; behind the last one it is that of the end."""
        of_stage = next((factor for first, factor in reversed(self.stages) if first <= turn), 1.0)
        return of_stage * self._scheduled(turn)

    def _scheduled(self, turn: int) -> float:
        if turn < self.warmup:
            return (turn + 1) / self.warmup
        name, every, factor = parse(self.schedule)
        left = max(1, self.iterations - self.warmup)
        done = turn - self.warmup
        match name:
            case "linear":
                return 1.0 - min(done, left) / left
            case "cosine":
                return (1.0 + cos(pi * min(done, left) / left)) / 2.0
            case "step":
                return factor ** (done // every)
            case "inverse_sqrt":
                return sqrt(max(1, self.warmup) / (turn + 1))
        return 1.0

    @property
    def constant(self) -> bool:
        """Whether the rate is always that of the plan."""
        return self.schedule == CONSTANT and not self.warmup and not self.stages


UNCHANGED = LearningRate()


def parse(text: str, where: str = "--lr-schedule") -> tuple[str, int, float]:
    """(name, iterations between two steps, their factor); raises InputError that says `where` and what there is."""
    name, colon, numbers = text.partition(":")
    refuse_unknown("learning-rate schedule", name, NAMES, where)
    if name != "step":
        if colon:
            raise InputError(f"{where} {shown(text)}: {name} takes no numbers; step:EVERY[,FACTOR] does")
        return name, 1, 1.0
    every, comma, factor = numbers.partition(",")
    try:
        parsed = name, int(every), float(factor) if comma else STEP_FACTOR
    except ValueError:
        parsed = name, 0, 0.0
    if parsed[1] < 1 or not 0 < parsed[2] < float("inf"):
        raise InputError(
            f"{where} {shown(text)}: give step:EVERY or step:EVERY,FACTOR, at least 1 iteration and a factor above 0"
        )
    return parsed
