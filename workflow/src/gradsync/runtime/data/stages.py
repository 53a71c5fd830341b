"""The data of a training in stages: images of another size and other batches from a turn on, the same samples.

Turns, passes and epochs are counted over the whole training, so that a stage goes on with the order of samples, and the
random crops, where the one before has ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Self

from gradsync.runtime.data.feed import Data, Feed, Shard
from gradsync.runtime.devices import PROCESSOR, Device


class Stages:
    """Each stage's data and epochs; a step takes `micro_batches` passes. `most` bounds the turns (0: whole epochs)."""

    def __init__(self, parts: Sequence[Data], epochs: Sequence[int], micro_batches: int = 1, most: int = 0):
        self.parts, self.epochs, self.micro_batches = list(parts), list(epochs), micro_batches
        self.an_epoch = [part.batches.turns_an_epoch // micro_batches for part in self.parts]
        self.ends = list(accumulate(count * turns for count, turns in zip(self.epochs, self.an_epoch, strict=True)))
        self.turns = min(self.ends[-1], most) if most else self.ends[-1]

    @property
    def first(self) -> list[int]:
        """The first turn of each stage that the training comes to."""
        return [0, *(end for end in self.ends[:-1] if end < self.turns)]

    def number(self, turn: int) -> int:
        """The stage of a turn."""
        return min(bisect_right(self.ends, turn), len(self.parts) - 1)

    def epochs_after(self, turns: int) -> float:
        """How many epochs so many turns are."""
        stage = self.number(turns)
        return sum(self.epochs[:stage]) + (turns - self._begin(stage)) / self.an_epoch[stage]

    def turn_after(self, epochs: float) -> float:
        """How many turns so many epochs are, which need not be whole."""
        before = 0
        for stage, count in enumerate(self.epochs):
            if epochs <= before + count or stage == len(self.epochs) - 1:
                return self._begin(stage) + (epochs - before) * self.an_epoch[stage]
            before += count
        raise AssertionError("a training has a stage")

    def turns_after(self, shares: Sequence[float]) -> list[float]:
        """How many turns are over at the end of each share of the epochs but the last."""
        epochs = self.epochs_after(self.turns)
        return [self.turn_after(done * epochs) for done in accumulate(shares[:-1])]

    def place(self, number: int) -> tuple[int, int]:
        """(stage, its pass as its own batches count them) of a pass of the training."""
        stage = self.number(number // self.micro_batches)
        within = number - self._begin(stage) * self.micro_batches
        return stage, within + sum(self.epochs[:stage]) * self.parts[stage].batches.turns_an_epoch

    def _begin(self, stage: int) -> int:
        return self.ends[stage - 1] if stage else 0


class StagedFeed:
    """A `Feed` of each stage; call it with a pass of the training, any pass, to get that shard of the rank."""

    def __init__(self, stages: Stages, rank: int, device: Device = PROCESSOR):
        self.stages = stages
        self.feeds = [Feed(part, rank, device=device) for part in stages.parts]

    def __call__(self, number: int) -> Shard:
        """Inputs (batch, *shape) and labels; raises InputError for a broken file."""
        stage, within = self.stages.place(number)
        return self.feeds[stage](within)

    def taken_seconds(self) -> tuple[float, float] | None:
        """As of a `Feed`, of the last stage that has been called since."""
        taken = [feed.taken_seconds() for feed in self.feeds]
        return next((each for each in reversed(taken) if each is not None), None)

    def close(self) -> None:
        """End the threads of all stages."""
        for feed in self.feeds:
            feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
