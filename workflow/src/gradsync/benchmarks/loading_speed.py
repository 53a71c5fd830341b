"""How fast photographs are got from the data cache, against torchvision's plain loader; a program of its own.

Target, for a model of 96 x 96 pixels (Fig. 9 of Shi et al., MLSys 2021), on one core: from the second epoch on, the
cache gives reduced images at least 5 times as fast as torchvision reads, decodes, crops, mirrors and normalises the
files (median of at least 20 pairs). Without a target: an exact cache, the copies of files on the local disk that a
later run reads, and all of them at 224 x 224 pixels. The loaders have their turns in one process (A B B A).

The photographs are made up, as large as ImageNet's are in the mean. They lie in the page cache, so that a disk or a
network, which only the plain loader waits for, takes no time here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gradsync.benchmarks import rows
from gradsync.benchmarks.rows import Row
from gradsync.runtime.data import made_photographs
from gradsync.runtime.data.cache import DataCache
from gradsync.runtime.data.cache.store import Store
from gradsync.runtime.data.imagenet import DEVIATION, MEAN, Photographs
from gradsync.runtime.torchvision_operators import torchvision
from gradsync.statistics.intervals import median_interval

PHOTOGRAPHS, BATCH, PAIRS = 64, 32, 24
MODES = ("local_files", "exact", "reduced")
TARGETS = {(96, "reduced"): 5.0}
SIDES = (96, 224)
ENOUGH = 1e12  # bytes: nothing is evicted
Get = Callable[[int], torch.Tensor]


def measure(folder: Path) -> Row:
    """A row for each size and each mode of the cache, and whether the target was met; files are made in `folder`."""
    made_photographs.make(folder / "files", PHOTOGRAPHS)
    return rows.result([row for side in SIDES for row in of_side(folder, side)])


def of_side(folder: Path, side: int, pairs: int = PAIRS) -> list[Row]:
    """The rows of a size of the model's input."""
    loaders = {"naive": _plain(folder / "files", side)}
    loaders |= {mode: _cached(folder / "files", folder / f"{mode}{side}", side, mode) for mode in MODES}
    for get in loaders.values():
        for turn in range(PHOTOGRAPHS // BATCH):  # the first epoch
            get(turn)
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for pair in range(pairs):
        for name in loaders if pair % 2 == 0 else list(loaders)[::-1]:
            start = time.perf_counter()
            loaders[name](pair)
            seconds[name].append(time.perf_counter() - start)
    return [_row(side, mode, np.array(seconds["naive"]), np.array(seconds[mode])) for mode in MODES]


def _row(side: int, mode: str, naive: np.ndarray, cached: np.ndarray) -> Row:
    interval, target = median_interval(naive / cached), TARGETS.get((side, mode))
    return {
        "task": f"photographs at {side} x {side}: {mode} of the cache / torchvision's loader, samples per second",
        **rows.ratio(interval),
        "pairs": len(naive),
        "naive_io_seconds": float(np.median(naive)),
        "io_seconds": float(np.median(cached)),
        "samples": BATCH,
        "target_ratio": target,
        "met": target is None or (interval[1] >= target and len(naive) >= 20),
    }


def _indices(turn: int) -> list[int]:
    epoch, within = divmod(turn, PHOTOGRAPHS // BATCH)
    order = np.random.default_rng(epoch).permutation(PHOTOGRAPHS)
    return [int(index) for index in order[within * BATCH : (within + 1) * BATCH]]


def _plain(files: Path, side: int) -> Get:
    transforms = torchvision().transforms
    augment = [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip()]
    normalise = [transforms.ToTensor(), transforms.Normalize(MEAN.tolist(), DEVIATION.tolist())]
    images = torchvision().datasets.ImageFolder(files, transforms.Compose([*augment, *normalise]))
    return lambda turn: torch.stack([images[index][0] for index in _indices(turn)])


def _cached(files: Path, folder: Path, side: int, mode: str) -> Get:
    names = [(str(path), 0) for path in sorted((files / "class").iterdir())]
    store = Store(folder, ENOUGH, "the data cache")
    store.prepare()
    in_memory = mode != "local_files"
    cache = DataCache(store if in_memory else None, None if in_memory else store, mode == "reduced")
    images = Photographs(names, side, 0, cache)
    images.threads = 1
    return lambda turn: images.images(torch.tensor(_indices(turn)), turn // (PHOTOGRAPHS // BATCH))
