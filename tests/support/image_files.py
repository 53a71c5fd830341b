"""Small data sets of images as files, and a short way to load one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gradsync.runtime import data

CLASSES = ("cat", "dog", "emu")
CIFAR_FILES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def load(
    name: str,
    folder: Path | None = None,
    model: str = "resnet18",
    size: int | None = 32,
    batch: int = 2,
    ranks: int = 2,
    seed: int = 5,
) -> data.Data:
    return data.load(name, model=model, size=size, batch=batch, ranks=ranks, seed=seed, folder=folder)


def random(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def idx(values: np.ndarray) -> bytes:
    """The bytes of an MNIST file."""
    header = np.array([0x800 + values.ndim, *values.shape], ">u4")
    return header.tobytes() + values.astype(np.uint8).tobytes()


def write_mnist(folder: Path) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, samples in (("train", 12), ("t10k", 6)):
        pixels = random(samples).integers(256, size=(samples, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(samples) % 10))


def write_cifar10(folder: Path) -> None:
    """Write files with the layout of CIFAR-10, which are not the published ones."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir()
    for key, file in enumerate(CIFAR_FILES):
        batch: dict[str, Any] = {
            "data": random(key).integers(256, size=(2, 3072), dtype=np.uint8),
            "labels": [key, key + 1],
        }
        (batches / file).write_bytes(pickle.dumps(batch))
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(label) for label in range(10)]}))


def write_photograph(path: Path, key: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = random(key).integers(40, 90, size=2)
    coarse = Image.fromarray(random(key).integers(256, size=(4, 4, 3), dtype=np.uint8))
    coarse.resize(size.tolist(), Image.Resampling.BILINEAR).save(path)


def write_photographs(folder: Path) -> None:
    """Write the folders of ImageNet's layout: 5 images per class for training, 2 for the test."""
    for part, images in (("train", 5), ("val", 2)):
        for label, name in enumerate(CLASSES):
            for number in range(images):
                file = folder / part / name / f"{number}.{('jpg', 'png')[number % 2]}"
                write_photograph(file, 10 * label + number)
