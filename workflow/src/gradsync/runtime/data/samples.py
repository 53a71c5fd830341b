"""What a data set is to a training run: inputs in the shape that the model takes, and labels.

Images stay as they came, small, and are brought to the model's shape a batch at a time: MNIST repeated to 3 channels of
224 x 224 would be 36 GB.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from gradsync.runtime.data.cache import DataCache
from gradsync.runtime.models.spec import IMAGES


class Wanted(NamedTuple):
    """What a set is asked for.

    `shape` is one sample as the model `takes` it, (channels, height, width) or (rows, length), `classes` the width of
    its output, `turn` the samples of all ranks in one turn; `folder` holds the files of sets that have files, of which
    `cache` keeps what is decoded (None: nothing is kept).
    """

    shape: tuple[int, ...]
    classes: int
    turn: int
    seed: int
    folder: Path
    takes: str = IMAGES
    cache: DataCache | None = None


class Samples(Protocol):
    """Labelled samples, each of `shape`: (channels, height, width) of images, (rows, length) of text.

    `decoded` says that a sample takes so long to get that the next turn's are worth preparing ahead.
    """

    shape: tuple[int, ...]
    decoded: bool

    def __len__(self) -> int:
        """The number of samples."""
        ...

    def batch(self, indices: torch.Tensor, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Those samples as they are in that epoch, and their labels: (indices, *shape) and (indices, ...) int64.

        Images are float32, text is token numbers, int64.
        """
        ...


class Images(ABC):
    """Labelled images: `labels` (samples,) int64, and each image of `shape` (channels, height, width)."""

    labels: torch.Tensor
    shape: tuple[int, ...]
    decoded = False

    @abstractmethod
    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images as float32, augmented for that epoch if they are augmented.  # (indices, C, H, W)"""

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: torch.Tensor, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Those images and their labels, (indices, channels, height, width) and (indices,)."""
        return self.images(indices, epoch), self.labels[indices]


class Pixels(Images):
    """Samples held in memory as integers 0 .. `levels`; images are in [0, 1].

    `pixels` (samples, channels, height, width) are resized bilinearly; one channel is repeated if `shape` has more.
    """

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor, levels: int, shape: tuple[int, ...]):
        self.pixels, self.labels, self.levels, self.shape = pixels, labels, levels, shape

    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images, the same in every epoch.  # (indices, channels, height, width)"""
        images = self.pixels[indices].float() / self.levels
        images = torch.nn.functional.interpolate(images, self.shape[1:], mode="bilinear", align_corners=False)
        return images.expand(-1, self.shape[0], -1, -1).contiguous()
