"""What a data set is to a training run: labels, and images in the shape that the model takes.

Images stay as they came, small, and are brought to the model's shape a batch at a time: MNIST repeated to 3 channels of
224 x 224 would be 36 GB.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import torch


class Wanted(NamedTuple):
    """What a set is asked for.

    `shape` is one sample (channels, height, width), `classes` the width of the model's output, `turn` the samples of
    all ranks in one turn; `folder` is where its files are, for sets that have files.
    """

    shape: tuple[int, int, int]
    classes: int
    turn: int
    seed: int
    folder: Path


class Samples(Protocol):
    """Labelled images: `labels` (samples,) int64, and each image of `shape` (channels, height, width).

    `decoded` says that an image takes so long to get that the next turn's are worth preparing ahead.
    """

    labels: torch.Tensor
    shape: tuple[int, int, int]
    decoded: bool

    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images as float32, as they are in that epoch (where they are augmented).  # (indices, C, H, W)"""
        ...


class Pixels:
    """Samples held in memory as integers 0 .. `levels`; images are in [0, 1].

    `pixels` (samples, channels, height, width) are resized bilinearly; one channel is repeated where `shape` has more.
    """

    decoded = False

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor, levels: int, shape: tuple[int, int, int]):
        self.pixels, self.labels, self.levels, self.shape = pixels, labels, levels, shape

    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images, the same in every epoch.  # (indices, channels, height, width)"""
        images = self.pixels[indices].float() / self.levels
        images = torch.nn.functional.interpolate(images, self.shape[1:], mode="bilinear", align_corners=False)
        return images.expand(-1, self.shape[0], -1, -1).contiguous()
