"""Table 1: the data sets, counted where a launch of the paper trains on them, and what the paper's shapes amount to.

The shape of a sample is that of Table 1. The number of images is counted on the files, and not known without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.launches import ElasticTraining, Training
from gradsync.configuration.settings import Settings
from gradsync.papers.declaration import Place
from gradsync.papers.easgd_knl.testbed import FLOAT32, MEGA, PAPER
from gradsync.papers.published import Published
from gradsync.papers.table import Table

DATA = {"mnist": "Mnist", "cifar10": "Cifar", "imagenet": "ImageNet"}
CHANNELS = {"mnist": 1, "imagenet": 3}  # Table 1 has them for Cifar alone
LAYOUT = {
    "mnist": ("MNIST/raw",),
    "cifar10": ("cifar-10-batches-py",),
    "imagenet": ("train", "val"),
}  # where a change of the data is seen


def folders(settings: Settings) -> dict[str, Path]:
    """By data set, where its files are: those of the launches that the paper shows."""
    launches: list[Training | ElasticTraining] = [*settings.of(PAPER), *settings.elastic_of(PAPER)]
    given = [launch for launch in launches if launch.data in DATA and launch.data_folder]
    return {launch.data: Path(str(launch.data_folder)).expanduser() for launch in given}


def files(place: Place) -> Iterable[Path]:
    """The folders that images are counted in."""
    return [folder / part for data, folder in folders(place.settings).items() for part in LAYOUT[data]]


def sample_bytes(data: str, settings: Settings) -> int:
    """A sample in single precision, of the shape that Table 1 has."""
    channels, height, width = _shape(data, Published(PAPER, settings))
    return FLOAT32 * channels * height * width


def table1(settings: Settings, results: Path) -> Table:
    """A row per data set."""
    published, given = Published(PAPER, settings), folders(settings)
    rows = []
    for data in DATA:
        channels, height, width = _shape(data, published)
        row: dict[str, Any] = {"rung": "derived", "dataset": data}
        row |= _counted(data, given[data]) if data in given else _unknown(data)
        row |= {"height": height, "width": width, "channels": channels}
        row |= {"sample_bytes": FLOAT32 * channels * height * width}
        images = published.value(f"{data}-train") if row["images_train"] is None else row["images_train"]
        rows.append(row | {"train_megabytes": images * row["sample_bytes"] / MEGA})
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "data": frame.dataset.map(DATA),
            **{
                f"{part} images, published (counted)": [
                    f"{published.value(f'{data}-{part}'):,.0f} ({'-' if pd.isna(count) else f'{count:,.0f}'})"
                    for data, count in zip(frame.dataset, frame[f"images_{part}"], strict=True)
                ]
                for part in ("train", "test")
            },
            "shape of Table 1": [f"{row.channels} x {row.height} x {row.width}" for row in frame.itertuples()],
            "sample [kB]": (frame.sample_bytes / 1e3).map("{:.1f}".format),
            "training images [MB]": frame.train_megabytes.map("{:.0f}".format),
        }
    )
    caption = (
        "Table 1: images are counted where a launch of this paper is given the data; `test` are those with labels. "
        "Samples are in single precision. Megabytes are of the counted training images, else of the published ones."
    )
    return Table(frame, display, caption)


def _shape(data: str, published: Published) -> tuple[int, int, int]:
    """(channels, height, width)."""
    channels = CHANNELS.get(data) or published.value(f"{data}-channels")
    return int(channels), int(published.value(f"{data}-height")), int(published.value(f"{data}-width"))


def _counted(data: str, folder: Path) -> dict[str, Any]:
    """Counts on the files; raises InputError as reading the data set does."""
    from gradsync.runtime.data import SETS  # they import torch, which the workflow does not need
    from gradsync.runtime.data.samples import Images, Wanted

    training, test = SETS[data].read(Wanted((3, 32, 32), 1000, 1, 0, folder))
    assert isinstance(training, Images)  # these three sets are of labelled images, in two parts
    assert test is not None
    classes = len(training.labels.unique())
    return {"images_train": len(training), "images_test": len(test), "classes": classes, "note": ""}


def _unknown(data: str) -> dict[str, Any]:
    note = f"{DATA[data]} is not given: no launch of this paper trains on data {data!r} from a folder"
    return {"images_train": None, "images_test": None, "classes": None, "note": note}
