"""MNIST from its four unpacked files, which lie in FOLDER/MNIST/raw as torchvision puts them."""

from __future__ import annotations

from pathlib import Path

from gradsync.errors import InputError
from gradsync.runtime.data.samples import Pixels, Wanted
from gradsync.runtime.torchvision_operators import torchvision

FILES = tuple(f"MNIST/raw/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
LEVELS = 255


def read(wanted: Wanted) -> tuple[Pixels, Pixels]:
    """Training and test samples. Raises InputError that names the file that is missing or broken."""
    for file in FILES:
        if not (wanted.folder / file).is_file():
            raise InputError(f"data 'mnist': {wanted.folder / file} is missing: unpack the four files of MNIST there")
    return _part(wanted, train=True), _part(wanted, train=False)


def _part(wanted: Wanted, train: bool) -> Pixels:
    images, labels = FILES[:2] if train else FILES[2:]
    broken = f"data 'mnist': {wanted.folder / images} and {Path(labels).name} can't be read"
    try:
        dataset = torchvision().datasets.MNIST(wanted.folder, train=train, download=False)
    except Exception as error:  # torchvision's reader raises whatever the broken bytes lead to
        raise InputError(f"{broken} ({str(error) or type(error).__name__}): unpack them again") from error
    if len(dataset.data) != len(dataset.targets):
        raise InputError(f"{broken}: {len(dataset.data)} images, {len(dataset.targets)} labels: unpack them again")
    return Pixels(dataset.data[:, None], dataset.targets, LEVELS, wanted.shape)
