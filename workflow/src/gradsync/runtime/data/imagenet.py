"""ImageNet, or any other photographs in the same folders: FOLDER/train/CLASS/*.JPEG and FOLDER/val/CLASS/*.JPEG.

Training: a random crop (Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, Section 6: 8 % to 100 % of the
area, aspect ratio 3/4 to 4/3), resized, mirrored half the time. Test: the shorter side resized to 256/224 of the
model's, then the centre. Both are normalised channel by channel with ImageNet's mean and deviation.

The random numbers of an image are a function of (seed, epoch, index) alone: neither the order in which threads decode
nor what else draws random numbers changes a run, and a resumed run sees the same images.

A cache keeps what is before that: decoded images, as they are or with the shorter side reduced to 256/224 of the
model's. The first changes no number. The second gives the same test images, and crops of the reduced images.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

from gradsync.errors import InputError
from gradsync.runtime.data.cache import DataCache, decode
from gradsync.runtime.data.samples import Images, Wanted
from gradsync.runtime.torchvision_operators import torchvision

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
NORMALISED = ((np.arange(256, dtype=np.float32)[:, None] / 255 - MEAN) / DEVIATION).T.copy()  # (channels, levels)
AREA = (0.08, 1.0)
WIDEST = 4 / 3
CROP_ATTEMPTS = 10
RESIZE = 256 / 224

Box = tuple[int, int, int, int]  # left, upper, right, lower


class Photographs(Images):
    """Samples that are decoded from files when they are needed, by as many threads as torch has in this process.

    Without a seed they are test images, which are not augmented. `images` raises InputError for a file that is none.
    """

    decoded = True

    def __init__(self, files: list[tuple[str, int]], side: int, seed: int | None, cache: DataCache | None = None):
        self.paths, self.side, self.seed, self.cache = [path for path, _ in files], side, seed, cache
        self.shape = (3, side, side)
        self.labels = torch.tensor([label for _, label in files])
        self.threads = torch.get_num_threads()  # of this thread; another's need not be the rank's share of the cores

    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images, normalised, augmented for that epoch.  # (indices, 3, side, side)"""
        with ThreadPoolExecutor(self.threads) as pool:
            images = list(pool.map(lambda index: self._image(index, epoch), indices.tolist()))
        return torch.from_numpy(np.stack(images))

    def _image(self, index: int, epoch: int) -> np.ndarray:
        pixels = self._pixels(self.paths[index])
        height, width, _ = pixels.shape
        if self.seed is None:
            photograph = Image.fromarray(pixels)
            reduced = self.cache is not None and self.cache.reduced
            resized = photograph if reduced else _resized(photograph, self.side)
            return _normalised(resized.crop(_centred(*resized.size, self.side, self.side)))
        random = np.random.default_rng((self.seed, epoch, index))
        left, upper, right, lower = random_box(width, height, random)
        crop = Image.fromarray(np.ascontiguousarray(pixels[upper:lower, left:right]))
        image = _normalised(crop.resize((self.side, self.side), Image.Resampling.BILINEAR))
        return image[:, :, ::-1] if random.random() < 0.5 else image

    def _pixels(self, path: str) -> np.ndarray:
        """The decoded image, whole.  # (height, width, 3) uint8"""
        if self.cache is None:
            return np.asarray(decode(path))
        reduce = _resized if self.seed is None else _reduced
        return self.cache.pixels(path, lambda photograph: reduce(photograph, self.side))


def random_box(width: int, height: int, random: np.random.Generator) -> Box:
    """A crop of an image of that many pixels; the largest centred one if none of 10 attempts fits."""
    for _ in range(CROP_ATTEMPTS):
        area = width * height * random.uniform(*AREA)
        ratio = math.exp(random.uniform(-math.log(WIDEST), math.log(WIDEST)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, upper = (int(random.integers(room, endpoint=True)) for room in (width - w, height - h))
            return left, upper, left + w, upper + h
    return _centred(width, height, min(width, round(height * WIDEST)), min(height, round(width * WIDEST)))


def _centred(width: int, height: int, w: int, h: int) -> Box:
    left, upper = (width - w) // 2, (height - h) // 2
    return left, upper, left + w, upper + h


def _resized(photograph: Image.Image, side: int) -> Image.Image:
    """With the shorter side 256/224 of `side`."""
    scale = RESIZE * side / min(photograph.size)
    width, height = (max(side, round(scale * length)) for length in photograph.size)
    return photograph.resize((width, height), Image.Resampling.BILINEAR)


def _reduced(photograph: Image.Image, side: int) -> Image.Image:
    """As `_resized`, but never larger than it is."""
    return _resized(photograph, side) if RESIZE * side < min(photograph.size) else photograph


def _normalised(image: Image.Image) -> np.ndarray:
    """(height, width, 3) uint8 -> (3, height, width) float32."""
    pixels = np.asarray(image)
    planes = np.empty((3, *pixels.shape[:2]), np.float32)
    for channel, plane in enumerate(planes):
        np.take(NORMALISED[channel], pixels[:, :, channel], out=plane, mode="clip")  # other modes copy `out`
    return planes


def read(wanted: Wanted) -> tuple[Photographs, Photographs]:
    """Training and test samples. Raises InputError if the folders are others, or have other classes."""
    parts = []
    for part in (wanted.folder / "train", wanted.folder / "val"):
        try:
            parts.append(torchvision().datasets.ImageFolder(part))
        except OSError as error:
            raise InputError(f"data 'imagenet': {part} with a folder of images per class is needed: {error}") from error
    training, test = parts
    if training.classes != test.classes:
        other = sorted(set(training.classes) ^ set(test.classes))[0]
        raise InputError(f"data 'imagenet': class {other!r} is only in one of {wanted.folder}/train and /val")
    side = wanted.shape[-1]
    return (
        Photographs(training.samples, side, wanted.seed, wanted.cache),
        Photographs(test.samples, side, None, wanted.cache),
    )
