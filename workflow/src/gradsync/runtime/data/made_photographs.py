"""Made-up photographs for what is timed: 500 x 375 pixels, JPEG files of 0.1 MB, as ImageNet's are in the mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT, QUALITY, NOISE = 500, 375, 90, 12.0
CLASS = "class"  # of all of them


def make(folder: Path, count: int) -> None:
    """Coarse random colours, smoothed, with noise of a camera: `folder/class/NUMBER.jpg`, in a folder that is new."""
    (folder / CLASS).mkdir(parents=True)
    for number in range(count):
        random = np.random.default_rng(number)
        coarse = Image.fromarray(random.integers(256, size=(24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.float64)
        noisy = np.clip(smooth + random.normal(0, NOISE, (HEIGHT, WIDTH, 1)), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / CLASS / f"{number}.jpg", quality=QUALITY)
