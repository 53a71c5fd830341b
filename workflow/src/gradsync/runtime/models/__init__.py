"""The models that are trained, by name: how to build one, what it takes and what its loss is.

The name of a reduced model says by how much it is smaller, for machines that the full size does not fit on. The
libraries that models come from are imported when one is built.
"""

from __future__ import annotations

import torch
from torch import nn

from gradsync.configuration.training import Compute
from gradsync.errors import InputError
from gradsync.names import refuse_unknown
from gradsync.runtime import replay
from gradsync.runtime.models import brought, images, language, own
from gradsync.runtime.models.spec import IMAGES, NOT_COUNTED, PAIRS, TRANSLATIONS, Model

__all__ = [
    "IMAGES",
    "MODELS",
    "NOT_COUNTED",
    "PAIRS",
    "TRANSLATIONS",
    "Model",
    "blank",
    "build",
    "get",
    "load",
    "refuse",
    "refuse_own",
    "shape",
    "title",
]

MODELS: dict[str, Model] = {**images.MODELS, **language.MODELS}


def get(name: str) -> Model:
    """The model of that name, `replay:FILE`, a workload of which is replayed (see `replay.py`), or one of one's own.

    Raises InputError that lists the known ones.
    """
    if replay.is_replay(name):
        workload = replay.workload_of(name)
        return Model(
            lambda: replay.Replayed(workload), (1, 1, 1), 2, smallest=1, smallest_alone=1, fixed=True, loss=_as_it_is
        )
    if own.is_own(name):
        return Model(
            lambda: brought.build(name), (1, 1, 1), 2, smallest=1, smallest_alone=1, fixed=True, loss=_as_it_is
        )
    refuse_unknown("model", name, MODELS)
    return MODELS[name]


def refuse(name: str, size: int | None, batch: int) -> None:
    """Raises InputError for a model that can't be measured with such inputs; one's own brings them.

    A batch that is the options' default was not asked for.
    """
    if not own.is_own(name):
        shape(name, size, batch)
        return
    if size is not None:
        raise InputError(f"--size {size}: the inputs of a model of your own are what its function gives")
    own.refuse(name, None if batch == Compute.batch else batch)


def refuse_own(name: str, what: str) -> None:
    """Raises InputError for a model of one's own, of which `what` (measured, trained how) can't be done."""
    if own.is_own(name):
        raise InputError(
            f"model {name}: one of your own is not {what}: gradsync measure (layers, launch, interference), plan, "
            "train and advise take it"
        )


def _as_it_is(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return output


def title(name: str) -> str:
    """The name of the model in results: a replayed workload has the workload's name, one's own its function's."""
    if own.is_own(name):
        return own.title(name)
    return replay.workload_of(name).name if replay.is_replay(name) else name


def build(name: str, seed: int) -> nn.Module:
    """The model with the parameters of that seed, which global generators are set to.

    Raises InputError for a name that is not there.
    """
    model = get(name)
    own.seeded(seed)
    return model.build()


def load(name: str) -> None:
    """Import the libraries that a model of the registry is built with, by building it without memory."""
    if name in MODELS:
        with torch.device("meta"):
            MODELS[name].build()


def blank(name: str, size: int | None = None, batch: int = 2) -> torch.Tensor:
    """Inputs of zeros of the type that the model takes; raises InputError as `shape` does.  # (batch, *shape)"""
    dtype = torch.float32 if get(name).takes == IMAGES else torch.int64
    return torch.zeros(batch, *shape(name, size, batch), dtype=dtype)


def shape(name: str, size: int | None = None, batch: int = 2) -> tuple[int, ...]:
    """The input of that model, trained with `batch` samples per rank: (channels, size, size), of text (rows, size).

    `size` None is its full size. Raises InputError if the model does not exist, or takes no input of that size.
    """
    model = get(name)
    first, *others = model.shape
    full = others[-1]
    if size is None:
        return model.shape
    pixels = model.takes == IMAGES
    refused = f"model {name!r} takes no " + (f"images of {size} x {size}" if pixels else f"text of {size} tokens")
    if model.fixed and size != full:
        raise InputError(f"{refused}: its size is fixed, {full} x {full}")
    if size < model.smallest:
        raise InputError(f"{refused}: the smallest is {model.smallest}")
    if model.largest is not None and size > model.largest:
        raise InputError(f"{refused}: the largest is {model.largest}")
    if batch == 1 and size < model.smallest_alone:
        raise InputError(
            f"model {name!r} takes no single image of {size} x {size}, batch normalisation needs two values a channel: "
            f"choose a batch of 2 or more, or a size of {model.smallest_alone} or more"
        )
    return first, *(size for _ in others)
