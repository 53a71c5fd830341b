"""The losses of a run, and which of them end it."""

from __future__ import annotations

import numpy as np
import torch

from gradsync.errors import RunError


def refuse_loss(value: float, rank: int, name: str, turn: int) -> None:
    """Raises RunError for a loss that is not finite."""
    if not np.isfinite(value):
        raise RunError(
            f"rank {rank}, {name!r}: the loss is {value} at iteration {turn}: lower the learning rate, or look at "
            "the data"
        )


class Losses:
    """The loss of each turn of `name` in `values`: at once or, if work is `queued`, when `read` is called.

    With several `passes` per turn it is their mean. A loss that is not finite is refused, unless losses are `scaled`:
    then it only skips a step.
    """

    def __init__(self, rank: int, name: str, *, scaled: bool, queued: bool, passes: int = 1):
        self.rank, self.name, self.scaled, self.queued, self.passes = rank, name, scaled, queued, passes
        self.of_turn: list[torch.Tensor] = []  # of the passes so far
        self.values: list[float] = []
        self.unread: list[tuple[int, torch.Tensor]] = []

    def take(self, iteration: int, loss: torch.Tensor) -> None:
        """Take the loss of the next pass of the turn that begins with that iteration."""
        self.of_turn.append(loss.detach())
        if len(self.of_turn) < self.passes:
            return
        whole = self.of_turn[0] if self.passes == 1 else torch.stack(self.of_turn).mean()
        self.of_turn = []
        self.unread.append((iteration, whole))
        if not self.queued:
            self.read()

    def read(self) -> None:
        """Wait for those that are not read yet; raises RunError for one that is refused."""
        unread, self.unread = self.unread, []
        for iteration, loss in unread:
            self.values.append(loss.item())
            if not self.scaled:
                refuse_loss(self.values[-1], self.rank, self.name, iteration)
