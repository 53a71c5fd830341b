"""Data sets: which samples exist, and which of them a rank gets in which turn.

A set is one file here with `read(wanted)`, which gives training samples and test samples (or None).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gradsync.configuration.training import Training
from gradsync.errors import InputError
from gradsync.names import refuse_unknown
from gradsync.plan.blocks import LEAST_TURNS
from gradsync.runtime import models
from gradsync.runtime.data import bleu, cifar10, digits, imagenet, mnist, synthetic, text, translation
from gradsync.runtime.data.batches import Batches
from gradsync.runtime.data.cache import DataCache
from gradsync.runtime.data.evaluation import accuracy, predicted
from gradsync.runtime.data.feed import Data, Feed, Shard, shard
from gradsync.runtime.data.masked import MaskedPairs
from gradsync.runtime.data.samples import Images, Pixels, Samples, Wanted
from gradsync.runtime.data.sentences import Sentences
from gradsync.runtime.data.stages import StagedFeed, Stages

__all__ = [
    "SETS",
    "Batches",
    "Data",
    "Feed",
    "MaskedPairs",
    "Pixels",
    "Samples",
    "Sentences",
    "Shard",
    "StagedFeed",
    "Stages",
    "accuracy",
    "bleu",
    "load",
    "load_stages",
    "predicted",
    "shard",
    "text",
    "translation",
]


class Source(NamedTuple):
    """How a set is read, the channels of its images (None: any), and what its folder holds (None: it needs no folder).

    `takes`: what its models take (None: anything); `optional`: the set needs no folder, and a file will do too.
    """

    read: Callable[[Wanted], tuple[Samples, Samples | None]]
    channels: int | None
    layout: str | None = None
    takes: str | None = models.IMAGES
    optional: bool = False


PARALLEL = "parallel lines of text, train/NAME.SOURCE and .TARGET, test/NAME.SOURCE and .TARGET"
SETS: dict[str, Source] = {
    "digits": Source(digits.read, 1),
    "mnist": Source(mnist.read, 1, "MNIST/raw"),
    "cifar10": Source(cifar10.read, 3, "cifar-10-batches-py"),
    "imagenet": Source(imagenet.read, 3, "train and val, each with a folder of images per class"),
    "synthetic": Source(synthetic.read, None, takes=None),
    text.NAME: Source(text.read, None, "text files (*.txt)", models.PAIRS, optional=True),
    "translation": Source(translation.read, None, PARALLEL, models.TRANSLATIONS, optional=True),
    "wmt17": Source(partial(translation.read, name="wmt17"), None, PARALLEL, models.TRANSLATIONS),
}


def load(
    name: str,
    *,
    model: str,
    size: int | None,
    batch: int,
    ranks: int,
    seed: int,
    folder: str | Path | None = None,
    accumulate: int = 1,
    cache: DataCache | None = None,
) -> Data:
    """The set `name` in the shape that `model` takes at `size` (pixels per side, or tokens; None: its own).

    `batch` is the number of samples per rank and turn; a step takes `accumulate` turns. `folder` holds the files of a
    set that has files; `cache` keeps images that are decoded from them. Raises InputError if set, model or folder do
    not exist or do not fit each other, and if there are too few samples for one step.
    """
    refuse_unknown("data", name, SETS)
    source, spec = SETS[name], models.get(model)
    shape = models.shape(model, size, batch)
    if source.takes not in (None, spec.takes):
        fitting = [other for other, candidate in SETS.items() if candidate.takes in (None, spec.takes)]
        raise InputError(
            f"data {name!r} has {source.takes}, model {model!r} takes {spec.takes}: choose another model, or data "
            f"{' or '.join(fitting)}"
        )
    if source.channels not in (None, 1, shape[0]):
        raise InputError(
            f"data {name!r} has {source.channels} channels, model {model!r} takes {shape[0]}: "
            "choose another model or data"
        )
    place = _folder(name, source, folder)
    try:
        wanted = Wanted(shape, spec.classes, batch * ranks * accumulate, seed, place, spec.takes, cache)
        training, test = source.read(wanted)
    except OSError as error:  # it names the file
        raise InputError(f"data {name!r} can't be read: {error}") from error
    classes = max((1 + int(part.labels.max()) for part in (training, test) if isinstance(part, Images)), default=0)
    if classes > spec.classes:
        raise InputError(
            f"data {name!r} has {classes} classes, model {model!r} has {spec.classes} outputs: "
            "choose another model or data"
        )
    batches = Batches(len(training), batch, ranks, seed, accumulate)
    if batches.turns_an_epoch < 1:
        parts, fewer = ("", "") if accumulate == 1 else (f" x {accumulate} micro-batches", ", fewer micro-batches")
        raise InputError(
            f"batch {batch} x {ranks} ranks{parts} is more than the {len(training)} training samples of "
            f"{name!r}: choose a smaller batch{fewer} or fewer ranks"
        )
    return Data(name, training, test, batches)


def load_stages(options: Training, ranks: int, seed: int, cache: DataCache | None = None) -> Stages:
    """The data of every stage of a training.

    Raises InputError as `load` does, for a stage too short to be timed, and for several sizes in a cache of one.
    """
    parts = [
        load(
            options.data,
            model=options.model,
            size=stage.size,
            batch=stage.batch or options.batch,
            ranks=ranks,
            seed=seed,
            folder=options.data_folder,
            accumulate=options.accumulate,
            cache=cache,
        )
        for stage in options.stages
    ]
    loaded = Stages(parts, [stage.epochs for stage in options.stages], options.accumulate, options.iterations)
    for number, (first, end) in enumerate(pairwise((*loaded.first, loaded.turns)), 1):
        if end - first < LEAST_TURNS and len(parts) > 1:
            raise InputError(f"--stage: stage {number} has {end - first} iteration(s): at least {LEAST_TURNS}")
    if options.data_cache == "reduced" and len({stage.size for stage in options.stages}) > 1:
        raise InputError("--data-cache reduced: images are reduced to one size, and stages have several: take exact")
    if isinstance(loaded.parts[0].training, Sentences) and len({stage.size for stage in options.stages}) > 1:
        raise InputError("--stage: translations of several sizes are of other sentences: leave out the sizes")
    return loaded


def _folder(name: str, source: Source, folder: str | Path | None) -> Path:
    if source.layout is None or (source.optional and folder is None):
        return Path()
    if folder is None:
        raise InputError(
            f"data {name!r} needs a folder that holds {source.layout}: "
            "set data_folder in the configuration, or give --data-folder"
        )
    place = Path(folder).expanduser()
    if source.optional:
        if not place.exists():
            raise InputError(f"data {name!r}: {place} does not exist: correct data_folder or --data-folder")
        return place.resolve()  # a file too, and never the empty path
    if not place.is_dir():
        raise InputError(f"data {name!r}: folder {place} does not exist: correct data_folder or --data-folder")
    return place
