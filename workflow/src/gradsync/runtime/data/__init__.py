"""Data sets: which samples exist, and which of them a rank gets in which turn.

A set is one file here with `read(wanted)`, which gives training samples and test samples (or None).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gradsync.errors import InputError
from gradsync.runtime import models
from gradsync.runtime.data import cifar10, digits, imagenet, mnist, synthetic
from gradsync.runtime.data.batches import Batches
from gradsync.runtime.data.evaluation import accuracy
from gradsync.runtime.data.feed import Data, Feed, Shard, shard
from gradsync.runtime.data.samples import Pixels, Samples, Wanted

__all__ = ["SETS", "Batches", "Data", "Feed", "Pixels", "Samples", "Shard", "accuracy", "load", "shard"]


class Source(NamedTuple):
    """How a set is read, the channels of its images (None: any), and what its folder holds (None: it needs none)."""

    read: Callable[[Wanted], tuple[Samples, Samples | None]]
    channels: int | None
    layout: str | None = None


SETS: dict[str, Source] = {
    "digits": Source(digits.read, 1),
    "mnist": Source(mnist.read, 1, "MNIST/raw"),
    "cifar10": Source(cifar10.read, 3, "cifar-10-batches-py"),
    "imagenet": Source(imagenet.read, 3, "train and val, each with a folder of images a class"),
    "synthetic": Source(synthetic.read, None),
}


def load(
    name: str, *, model: str, size: int | None, batch: int, ranks: int, seed: int, folder: str | Path | None = None
) -> Data:
    """That set in the shape that `model` takes at `size` (pixels a side; None: its full size), shared by the ranks.

    `batch` is samples a rank and turn. `folder` holds the files of a set that has files. Raises InputError where set,
    model or folder do not exist or do not fit each other, and where there are too few samples for one turn.
    """
    if name not in SETS:
        raise InputError(f"data {name!r} does not exist; there are: {', '.join(SETS)}")
    source = SETS[name]
    shape = models.shape(model, size, batch)
    if source.channels not in (None, 1, shape[0]):
        raise InputError(
            f"data {name!r} has {source.channels} channels, model {model!r} takes {shape[0]}: "
            "choose another model or data"
        )
    place = _folder(name, source, folder)
    try:
        training, test = source.read(Wanted(shape, models.get(model).classes, batch * ranks, seed, place))
    except OSError as error:  # it names the file
        raise InputError(f"data {name!r} can't be read: {error}") from error
    classes = 1 + max(int(part.labels.max()) for part in (training, test) if part is not None)
    if classes > models.get(model).classes:
        raise InputError(
            f"data {name!r} has {classes} classes, model {model!r} has {models.get(model).classes} outputs: "
            "choose another model or data"
        )
    batches = Batches(len(training.labels), batch, ranks, seed)
    if batches.turns_an_epoch < 1:
        raise InputError(
            f"batch {batch} x {ranks} ranks is more than the {len(training.labels)} training samples of {name!r}: "
            "choose a smaller batch or fewer ranks"
        )
    return Data(name, training, test, batches)


def _folder(name: str, source: Source, folder: str | Path | None) -> Path:
    if source.layout is None:
        return Path()
    if folder is None:
        raise InputError(
            f"data {name!r} needs a folder that holds {source.layout}: "
            "set data_folder in the configuration, or give --data-folder"
        )
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise InputError(f"data {name!r}: folder {place} does not exist: correct data_folder or --data-folder")
    return place
