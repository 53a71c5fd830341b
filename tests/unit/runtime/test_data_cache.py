"""Photographs by way of the cache: the same images, each file read and decoded once by all ranks of a node."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
from PIL import Image

import small_disk
from gradsync.configuration.training import Cached
from gradsync.errors import InputError
from gradsync.lifetimes import leftovers
from gradsync.runtime import data
from gradsync.runtime.data import imagenet
from gradsync.runtime.data.cache import DataCache, opening
from gradsync.runtime.data.cache.store import Store
from image_files import load, write_photograph
from waiting import HANGS_SECONDS

ALL = torch.arange(15)


def cached(photographs: Path, memory: Store | None, disk: Store | None = None, reduced: bool = False) -> data.Data:
    cache = DataCache(memory, disk, reduced)
    return data.load(
        "imagenet", model="resnet18", size=32, batch=2, ranks=2, seed=5, folder=photographs, cache=cache
    )  # fmt: skip


def store(folder: Path, most: float = 1e9) -> Store:
    made = Store(folder, most, "the cache")
    made.prepare()
    return made


def counts(loaded: data.Data) -> dict[str, float]:
    return {key: count for key, count in loaded.training.cache.counts().items() if count}


@pytest.fixture
def plain(photographs):
    return load("imagenet", photographs)


def test_an_exact_cache_changes_no_image(photographs, plain, tmp_path):
    loaded = cached(photographs, store(tmp_path / "memory"), store(tmp_path / "disk"))
    for epoch in range(3):
        assert torch.equal(loaded.training.images(ALL, epoch), plain.training.images(ALL, epoch))
        assert torch.equal(loaded.test.images(ALL[:6], epoch), plain.test.images(ALL[:6], epoch))
    assert counts(loaded) == {"memory_misses": 21, "memory_hits": 42, "disk_misses": 21}


def test_a_reduced_cache_changes_no_test_image_and_crops_what_it_keeps(photographs, plain, tmp_path):
    loaded = cached(photographs, store(tmp_path / "memory"), reduced=True)
    for _ in range(2):
        assert torch.equal(loaded.test.images(ALL[:6], 0), plain.test.images(ALL[:6], 0))
    first = loaded.training.images(ALL, 0)
    assert torch.equal(first, loaded.training.images(ALL, 0))
    assert not torch.equal(first, loaded.training.images(ALL, 1))
    kept = [loaded.training._pixels(path) for path in loaded.training.paths]
    assert {min(pixels.shape[:2]) for pixels in kept} == {round(imagenet.RESIZE * 32)}
    # of no other images than the plain ones: most of their pixels agree
    assert (first - plain.training.images(ALL, 0)).abs().median() < 0.05


def test_a_photograph_that_is_smaller_than_what_is_kept_stays_as_it_is(photographs, tmp_path):
    path = photographs / "train" / "cat" / "0.jpg"
    Image.new("RGB", (20, 50), "red").save(path)
    loaded = cached(photographs, store(tmp_path / "memory"), reduced=True)
    assert loaded.training._pixels(str(path)).shape == (50, 20, 3)
    assert loaded.training._pixels(str(path)).shape == (50, 20, 3)


def test_a_later_run_reads_the_copies(photographs, plain, tmp_path):
    cached(photographs, store(tmp_path / "memory"), store(tmp_path / "disk")).training.images(ALL, 0)
    for path in (photographs / "train").rglob("*.*"):
        path.chmod(0)  # root may read it all the same, and the count tells
    later = cached(photographs, store(tmp_path / "later"), store(tmp_path / "disk"))
    assert torch.equal(later.training.images(ALL, 1), plain_again(photographs).training.images(ALL, 1))
    assert counts(later) == {"memory_misses": 15, "disk_hits": 15}


def plain_again(photographs: Path) -> data.Data:
    for path in (photographs / "train").rglob("*.*"):
        path.chmod(0o644)
    return load("imagenet", photographs)


def test_a_file_that_was_replaced_is_read_again(photographs, tmp_path):
    cached(photographs, store(tmp_path / "memory"), store(tmp_path / "disk")).training.images(ALL, 0)
    write_photograph(photographs / "train" / "cat" / "0.jpg", 99)
    later = cached(photographs, store(tmp_path / "later"), store(tmp_path / "disk"))
    assert torch.equal(later.training.images(ALL, 0), load("imagenet", photographs).training.images(ALL, 0))
    assert counts(later)["disk_misses"] == 1


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_damaged_entries_are_made_again(photographs, plain, tmp_path, level):
    def again() -> data.Data:
        return cached(photographs, store(tmp_path / "memory"), store(tmp_path / "disk"))

    again().training.images(ALL, 0)
    for folder in ("memory", "disk") if level == "disk" else ("memory",):
        for number, entry in enumerate(sorted((tmp_path / folder).glob("???/*"))):
            content = bytearray(entry.read_bytes())
            content[-1 - number] ^= 255
            entry.write_bytes(content)
    healed = again()
    assert torch.equal(healed.training.images(ALL, 1), plain.training.images(ALL, 1))
    assert counts(healed)[f"{level}_heals"] == 15
    assert torch.equal(again().training.images(ALL, 1), plain.training.images(ALL, 1))
    assert counts(again()) == {}


def test_a_cache_of_few_bytes_evicts_and_gives_the_same_images(photographs, plain, tmp_path):
    loaded = cached(photographs, store(tmp_path / "memory", 60_000), store(tmp_path / "disk", 20_000))
    for epoch in range(3):
        assert torch.equal(loaded.training.images(ALL, epoch), plain.training.images(ALL, epoch))
    assert counts(loaded)["memory_evictions"] > 0
    assert counts(loaded)["disk_evictions"] > 0
    assert sum(file.stat().st_size for file in (tmp_path / "memory").glob("???/*")) <= 60_000


def test_full_disks_are_survived(photographs, plain, tmp_path, capfd):
    with (
        small_disk.mounted(tmp_path / "memory", 60_000) as memory,
        small_disk.mounted(tmp_path / "disk", 32_768) as disk,
    ):
        loaded = cached(photographs, store(memory), store(disk))
        for epoch in range(2):
            assert torch.equal(loaded.training.images(ALL, epoch), plain.training.images(ALL, epoch))
        assert counts(loaded)["memory_refusals"] > 0
        assert counts(loaded)["disk_refusals"] > 0
    assert capfd.readouterr().err.count("takes no more") == 2  # one each


def test_a_truncated_file_is_named_and_not_kept(photographs, tmp_path):
    broken = photographs / "train" / "emu" / "2.jpg"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:100])
    loaded = cached(photographs, store(tmp_path / "memory"), store(tmp_path / "disk"))
    for _ in range(2):
        with pytest.raises(InputError, match=r"emu/2\.jpg: no image that can be decoded"):
            loaded.training.images(ALL, 0)
    broken.write_bytes(whole)
    assert torch.equal(loaded.training.images(ALL, 0), load("imagenet", photographs).training.images(ALL, 0))
    later = cached(photographs, store(tmp_path / "later"), store(tmp_path / "disk"))
    broken.unlink()
    with pytest.raises(InputError, match=r"emu/2\.jpg: can't be read \(No such file"):
        later.training.images(ALL, 0)


def decode_all(photographs: Path, memory: Path, answers: multiprocessing.Queue) -> None:
    loaded = cached(photographs, Store(memory, 1e9, "the cache"))
    answers.put((loaded.training.images(ALL, 0).numpy(), counts(loaded)))


def test_two_processes_decode_each_file_once(photographs, plain, tmp_path):
    store(tmp_path / "memory")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=decode_all, args=(photographs, tmp_path / "memory", answers)) for _ in range(2)]
    for process in processes:
        process.start()
    both = [answers.get(timeout=HANGS_SECONDS) for _ in processes]
    for process in processes:
        process.join(HANGS_SECONDS)
    for images, _ in both:
        assert torch.equal(torch.from_numpy(images), plain.training.images(ALL, 0))
    assert sum(counted.get("memory_misses", 0) for _, counted in both) == 15
    assert sum(counted.get("memory_hits", 0) for _, counted in both) == 15


# --- the cache of a launch


def test_a_launch_removes_its_memory_and_keeps_its_copies(photographs, tmp_path):
    options = Cached(data_cache="exact", data_cache_memory=3, data_cache_folder=str(tmp_path / "copies"))
    with opening.opened(options, 0) as cache:
        assert cache.memory.folder.parent == leftovers.MEMORY
        assert cache.memory.most == 3 * 2**20
        cache.pixels(str(photographs / "train" / "cat" / "0.jpg"), lambda image: image)
        assert len(list(cache.memory.folder.glob("???/*"))) == 1
    assert not cache.memory.folder.exists()
    assert len(list((tmp_path / "copies").glob("???/*"))) == 1
    assert opening.counted(cache)["data_cache_memory_misses"] == 1


def test_a_launch_without_shared_memory_goes_on_without(photographs, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path / "nowhere")
    with opening.opened(Cached(data_cache="exact"), 0) as cache:
        assert cache.memory is None
        assert cache.pixels(str(photographs / "train" / "cat" / "0.jpg"), lambda image: image).shape[2] == 3
    assert "no data cache in memory" in capfd.readouterr().err


def test_a_launch_may_keep_copies_alone(photographs, tmp_path):
    with opening.opened(Cached(data_cache="files", data_cache_folder=str(tmp_path / "copies")), 0) as cache:
        assert cache.memory is None
        for _ in range(2):
            cache.pixels(str(photographs / "train" / "cat" / "0.jpg"), lambda image: image)
    counted = {key: count for key, count in opening.counted(cache).items() if count}
    assert counted == {"data_cache_disk_misses": 1, "data_cache_disk_hits": 1}


def test_no_cache_is_the_default():
    with opening.opened(Cached(), 0) as cache:
        assert cache is None
    assert opening.counted(None) == {}
