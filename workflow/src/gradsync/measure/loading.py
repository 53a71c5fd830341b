"""Measure what a training waits for its photographs, without the data cache and from each level of it, in turn.

Source: Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters", Section 5.4 and
Fig. 9. One rank trains the model; loaders have their turns in blocks of iterations (A B C D D C B A):

    naive              files are read from the data's folder and decoded whenever they are wanted
    local_files        copies on the local disk are read and decoded, as in a run after the first one
    datacache          decoded pixels are taken from memory, as they are, from the second epoch on
    datacache_reduced  so are pixels that were reduced to the size that test images have

A block is a repeat; its first iteration is not timed, since nothing computes while its samples are prepared. As in
training, the samples of the next iteration are prepared while one is computed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.lifetimes import leftovers
from gradsync.runtime import data, models
from gradsync.runtime.data import made_photographs
from gradsync.runtime.data.cache import DataCache
from gradsync.runtime.data.cache.store import Store
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.statistics import quiet
from gradsync.statistics.intervals import median_interval

LOADERS = ("naive", "local_files", "datacache", "datacache_reduced")
ENOUGH = 1e15  # bytes: nothing is evicted
LEARNING_RATE = 1e-3
MADE_UP = "made-up photographs in the page cache of this machine, where reading a file waits for no disk or network"


def measure(
    model: str,
    *,
    size: int | None,
    batch: int,
    folder: Path | None = None,
    photographs: int = 0,
    blocks: int,
    iterations: int,
    device: Device = PROCESSOR,
) -> dict[str, Result]:
    """A run of each loader: repeats of io_seconds, exposed_io_seconds, iteration_seconds and throughput.

    `folder` has `train` and `val` as ImageNet has; None: so many photographs are made up. A block has so many
    iterations that are timed. io_seconds is what the samples of an iteration take to read, whatever overlaps;
    exposed_io_seconds is what the iteration waits for them.

    Raises InputError if a cache has no room for all photographs.
    """
    others = OtherWork()
    with (
        _photographs(folder, photographs) as place,
        leftovers.temporary_folder() as copies,
        leftovers.temporary_folder(leftovers.MEMORY) as memory,
    ):
        step = _Step(model, device)
        wanted = partial(data.load, "imagenet", model=model, size=size, batch=batch, ranks=1, seed=0, folder=place)
        caches = {name: _cache(name, copies, memory) for name in LOADERS}
        loaders = {name: _Loader(wanted(cache=cache), step, cache) for name, cache in caches.items()}
        first = loaders["naive"].data.training
        for loader in loaders.values():
            loader.first_epoch()
        for number in range(blocks):
            print(f"measure loading: block {number + 1}/{blocks}", file=sys.stderr, flush=True)
            for name in LOADERS[:: 1 if number % 2 == 0 else -1]:
                loaders[name].block(iterations)
    provenance = {**machines(), **others.share(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    provenance |= device.provenance()
    settings = {"model": model, "size": first.shape[-1], "batch": batch, "blocks": blocks, "iterations": iterations}
    settings |= {"device": device.kind, "data_folder": None if folder is None else str(folder)}
    settings |= {"photographs": len(first)}
    notes = [MADE_UP if folder is None else f"photographs of {folder}", *quiet.load_warnings(provenance, "launch")]
    return {
        name: Result(
            rung="measured",
            table="loading",
            scheme=name,
            model=f"{model}_{first.shape[-1]}",
            ranks=1,
            settings={**settings, "loader": name},
            provenance=provenance,
            summary={key: median_interval(values)[1] for key, values in loader.samples(batch).items()},
            samples=loader.samples(batch),
            notes=notes,
        )
        for name, loader in loaders.items()
    }


@contextmanager
def _photographs(folder: Path | None, count: int) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with leftovers.temporary_folder() as made:
        made_photographs.make(made / "train", count)
        made_photographs.make(made / "val", 1)
        yield made


def _cache(loader: str, copies: Path, memory: Path) -> DataCache | None:
    if loader == "naive":
        return None
    store = Store((copies if loader == "local_files" else memory) / loader, ENOUGH, f"loader {loader}")
    store.prepare()
    if loader == "local_files":
        return DataCache(None, store, reduced=False)
    return DataCache(store, None, reduced=loader.endswith("_reduced"))


class _Step:
    """Forward, backward and update of one model, which all loaders feed."""

    def __init__(self, name: str, device: Device):
        self.device, self.loss_of = device, models.get(name).loss
        self.model = models.build(name, 0).to(device.torch_device).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE)

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss_of(self.model(inputs), labels).backward()
        self.optimizer.step()
        self.device.synchronize()


class _Loader:
    """What one way to get samples has taken, block by block."""

    def __init__(self, loaded: data.Data, step: _Step, cache: DataCache | None):
        self.data, self.step, self.cache = loaded, step, cache
        self.turn = 0  # the next one
        self.io: list[tuple[float, float]] = []  # medians of (reading, waiting) seconds
        self.iterations: list[float] = []  # medians of seconds

    def first_epoch(self) -> None:
        """Get every sample once, also those that no whole batch has room for; nothing is computed."""
        for start in range(0, len(self.data.training), self.data.batches.batch):
            indices = torch.arange(start, min(start + self.data.batches.batch, len(self.data.training)))
            self.data.training.batch(indices, 0)
            self._refuse_what_did_not_fit(start)
        self.turn = self.data.batches.turns_an_epoch

    def _refuse_what_did_not_fit(self, before: int) -> None:
        for level, store in (("memory", self.cache and self.cache.memory), ("disk", self.cache and self.cache.disk)):
            if store and store.counts["refusals"]:
                raise InputError(
                    f"loading: {store.folder.parent.parent} has no room for all {len(self.data.training)} photographs "
                    f"on the {level} level of the cache, only for some {before}: make room there, or measure with fewer"
                )

    def block(self, iterations: int) -> None:
        """Train for so many iterations, and one before that is not timed."""
        seconds = []
        with data.Feed(self.data, 0, device=self.step.device) as feed:
            self.step(*feed(self.turn))
            feed.taken_seconds()  # of the first
            for turn in range(self.turn + 1, self.turn + 1 + iterations):
                start = time.perf_counter()
                self.step(*feed(turn))
                seconds.append(time.perf_counter() - start)
            reading = feed.taken_seconds()
        assert reading is not None  # photographs are decoded
        self.turn += 1 + iterations
        self.io.append(reading)
        self.iterations.append(float(np.median(seconds)))

    def samples(self, batch: int) -> dict[str, list[float]]:
        """By quantity, a value per block."""
        reading, waiting = np.array(self.io).T
        iteration = np.array(self.iterations)
        quantities = {"io_seconds": reading, "exposed_io_seconds": waiting, "iteration_seconds": iteration}
        return {key: each.tolist() for key, each in {**quantities, "throughput": batch / iteration}.items()}
