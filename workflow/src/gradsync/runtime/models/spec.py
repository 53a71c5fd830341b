"""The entry of a model in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

# What a model takes; the words are those of error messages.
IMAGES = "images"
PAIRS = "pairs of sentences"
TRANSLATIONS = "sentences with their translations"
NOT_COUNTED = -100  # a label that neither losses nor accuracies count; torch's own


def labelled(output: torch.Tensor, labels: torch.Tensor) -> tuple[int, int]:
    """(labels that were predicted, labels) of logits (batch, classes) and labels (batch,)."""
    return int((output.argmax(1) == labels).sum()), labels.numel()


@dataclass(frozen=True)
class Model:
    """A model of the registry.

    `shape` is one full-size input sample: (channels, height, width) of images, float; (rows, length) of text, token
    numbers. `classes` is the width of the output, of text the vocabulary. `loss` takes the model's output in training
    mode, and labels; `right` takes its output in eval mode (of images: plain logits), and labels: it gives how many
    labels were predicted, and of how many. `smallest` is the smallest size (side in pixels, or length) that can be
    trained on with 2 samples or more per batch, `smallest_alone` with 1: batch normalisation needs two values per
    channel. `largest` is None if any size will do. `fixed` allows no other size than that of `shape`. A `reduced` model
    is a smaller version of another one, measured only if it is named.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    smallest: int
    smallest_alone: int
    fixed: bool = False
    reduced: bool = False
    loss: Callable[[Any, torch.Tensor], torch.Tensor] = nn.functional.cross_entropy
    takes: str = IMAGES
    largest: int | None = None
    right: Callable[[Any, torch.Tensor], tuple[int, int]] = labelled

    def outputs(self, shape: tuple[int, ...]) -> int:
        """The number of values that it gives for one sample of that shape."""
        return self.classes if self.takes == IMAGES else self.classes * shape[-1]
