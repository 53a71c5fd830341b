"""CIFAR-10 from its "python version", unpacked: FOLDER/cifar-10-batches-py.

These files are pickles, which can run any code when they are loaded. torchvision compares the MD5 of each with that of
the published file before it loads it, even if nothing is downloaded, so that only the published ones are loaded.
"""

from __future__ import annotations

import torch

from gradsync.errors import InputError
from gradsync.runtime.data.samples import Pixels, Wanted
from gradsync.runtime.torchvision_operators import torchvision

LEVELS = 255


def read(wanted: Wanted) -> tuple[Pixels, Pixels]:
    """Training and test samples. Raises InputError that names a missing file, or if one is not the published one."""
    published = torchvision().datasets.CIFAR10
    place = wanted.folder / published.base_folder
    listed = [*published.train_list, *published.test_list]
    for file in (*(name for name, _ in listed), published.meta["filename"]):
        if not (place / file).is_file():
            raise InputError(f"data 'cifar10': {place / file} is missing: unpack {published.filename} there")
    try:
        parts = [published(wanted.folder, train=train, download=False) for train in (True, False)]
    except RuntimeError as error:
        raise InputError(
            f"data 'cifar10': a file in {place} is not the published one (its MD5 differs): unpack "
            f"{published.filename} again"
        ) from error
    training, test = (
        Pixels(torch.from_numpy(part.data).permute(0, 3, 1, 2), torch.tensor(part.targets), LEVELS, wanted.shape)
        for part in parts
    )
    return training, test
