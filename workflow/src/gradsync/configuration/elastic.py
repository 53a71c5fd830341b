"""What is trained in a launch of one plan whose ranks may have different roles: options of `gradsync elastic`."""

from __future__ import annotations

from dataclasses import dataclass

from gradsync.configuration.options import option
from gradsync.configuration.training import Compute, Course, OnDevice
from gradsync.errors import InputError
from gradsync.limits import MOST_COUNT, MOST_SEED

MOST_WAIT = 3600.0  # seconds that forward and backward are to take
LATE = 0.05  # the share by which they may take longer, mean of all iterations


@dataclass(frozen=True, kw_only=True)
class Elastic(Course, OnDevice, Compute):
    """All of it: what ranks are told, and what their results record."""

    segment: int = option(
        16, "iterations of each worker between two tests, whose time does not count", metavar="N", least=1
    )
    seeds: tuple[int, ...] = option((0,), "one training for each", flag="--seed", metavar="N", least=0, most=MOST_SEED)
    switch: int = option(
        0, "iterations by the plan of --before, whole periods of --plan", metavar="N", least=0, most=MOST_COUNT
    )
    target_errors: tuple[float, ...] = option(
        (), "test errors of which the time that they take is recorded", flag="--target-error", metavar="X"
    )
    stop_at_target: bool = option(False, "end the training of a seed once it has reached every --target-error")
    compute_seconds: float | None = option(
        None,
        "of forward and backward, as on a device of that speed: a worker that is done earlier waits, so that ranks "
        "which share cores don't slow one another down",
        metavar="S",
        unset="as long as they take",
    )
    conformance: int = option(
        2, "iterations that the plan is held against the oracle; 0: none", metavar="N", least=0, most=MOST_COUNT
    )
    checkpoint_seconds: float = option(120.0, "seconds between checkpoints", metavar="S", least=0)
    again: int = option(
        0,
        "train the first seed so many times more, to see whether the same parameters come out, bit by bit",
        metavar="N",
        least=0,
        most=MOST_COUNT,
    )
    keep: bool = option(False, "keep the final parameters of each seed, too")
    paper: str = option("", "the paper whose tables and figures show it", metavar="KEY", configured="easgd_knl")

    def paced(self, seconds: float) -> bool:
        """Whether forward and backward, which took the slowest worker so long, kept the time that they were to take."""
        return self.compute_seconds is not None and seconds <= (1 + LATE) * self.compute_seconds

    def refuse(self) -> None:
        """Raises InputError for numbers that make no sense."""
        for key in ("batch", "epochs", "segment", "iterations", "conformance", "again"):
            least = 1 if key in ("batch", "epochs", "segment") else 0
            if getattr(self, key) < least:
                raise InputError(f"--{key} {getattr(self, key)}: at least {least}")
        if not self.checkpoint_seconds >= 0:
            raise InputError(f"--checkpoint-seconds {self.checkpoint_seconds}: not negative")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError("--seed: a seed is given twice: its second training would be taken for the first")
        for error in self.target_errors:
            if not 0 <= error < 1:
                raise InputError(f"--target-error {error}: a share of test samples, at least 0 and below 1")
        if self.compute_seconds is not None and not 0 < self.compute_seconds <= MOST_WAIT:
            raise InputError(f"--compute-seconds {self.compute_seconds}: more than 0 and at most {MOST_WAIT:g}")
        if self.compute_seconds is not None and self.device != "cpu":
            raise InputError("--compute-seconds: nothing waits for a GPU's computation: leave --device out")
        if self.stop_at_target and not self.target_errors:
            raise InputError("--stop-at-target: needs a --target-error at which to stop")
        if self.stop_at_target and self.again:
            raise InputError("--stop-at-target: not with --again, which trains as long as it is told")
