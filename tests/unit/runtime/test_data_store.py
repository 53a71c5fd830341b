"""Entries of the data cache: bounded, evicted, healed, refused by disks that take no more, shared by processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import small_disk
from gradsync.runtime.data.cache import claims
from gradsync.runtime.data.cache.claims import claimed
from gradsync.runtime.data.cache.store import HEADER, PAGE, PENDING, TOTAL, Store
from waiting import HANGS_SECONDS

ENTRY = b"e" * (PAGE - HEADER.size)  # takes one page


def store(folder: Path, most: float = 1e9) -> Store:
    made = Store(folder, most, "the cache")
    made.prepare()
    return made


def key(number: int) -> str:
    return f"{number:03x}{number:037x}"


def entries(folder: Path) -> list[Path]:
    return sorted(file for part in folder.iterdir() if part.is_dir() for file in part.iterdir())


def taken(folder: Path) -> int:
    return int.from_bytes((folder / TOTAL).read_bytes(), "little")


def test_what_was_put_is_what_is_got(tmp_path):
    filled = store(tmp_path / "new" / "folder")
    assert filled.get(key(1)) is None
    filled.put(key(1), b"one", memoryview(b" and a half"))
    filled.put(key(2), b"")
    assert filled.get(key(1)) == b"one and a half"
    assert filled.get(key(2)) == b""
    assert filled.counts == {"hits": 2}
    assert taken(filled.folder) == 2 * PAGE


def test_the_bound_holds_and_the_evicted_are_others(tmp_path):
    filled = store(tmp_path, most=4.5 * PAGE)
    for number in range(30):
        filled.put(key(number), ENTRY)
        assert filled.get(key(number)) == ENTRY  # the newest one is never the victim
        assert sum(file.stat().st_size for file in entries(tmp_path)) <= 4 * PAGE
    assert len(entries(tmp_path)) == 4
    assert filled.counts["evictions"] == 26
    assert taken(tmp_path) == 4 * PAGE


def test_an_entry_that_is_larger_than_the_bound_evicts_nothing(tmp_path):
    filled = store(tmp_path, most=2 * PAGE)
    filled.put(key(1), ENTRY)
    filled.put(key(2), bytes(2 * PAGE))
    assert filled.get(key(1)) == ENTRY
    assert filled.counts == {"hits": 1, "refusals": 1}


def test_a_smaller_bound_holds_for_what_an_earlier_run_has_left(tmp_path):
    filled = store(tmp_path)
    for number in range(10):
        filled.put(key(number), ENTRY)
    (tmp_path / TOTAL).unlink()
    later = store(tmp_path, most=3 * PAGE)
    assert taken(tmp_path) == 10 * PAGE
    later.put(key(11), ENTRY)
    assert len(entries(tmp_path)) == 3
    assert later.get(key(11)) == ENTRY


@pytest.mark.parametrize("damage", [
    lambda whole: whole[:-1],
    lambda whole: whole[:5],
    lambda whole: b"",
    lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    lambda whole: whole + b"x",
    lambda whole: bytes(len(whole)),
])  # fmt: skip
def test_a_damaged_entry_is_removed_and_can_be_put_again(tmp_path, damage):
    filled = store(tmp_path)
    filled.put(key(1), ENTRY)
    (file,) = entries(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert filled.get(key(1)) is None
    assert entries(tmp_path) == []
    assert filled.counts == {"heals": 1}
    filled.put(key(1), ENTRY)
    assert filled.get(key(1)) == ENTRY


def test_a_full_disk_takes_no_more_says_so_once_and_keeps_what_it_has(tmp_path, capfd):
    with small_disk.mounted(tmp_path / "disk", 20 * PAGE) as folder:
        filled = store(folder)
        for number in range(40):
            filled.put(key(number), ENTRY)
        kept = len(entries(folder))
        assert 0 < kept < 20
        assert filled.counts["refusals"] == 40 - kept
        assert all(filled.get(key(number)) == ENTRY for number in range(kept))
        assert not list(folder.glob(f"{PENDING}*"))
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "the cache takes no more" in said
    assert "no space left" in said


def test_a_read_only_folder_is_read(tmp_path, capfd):
    with small_disk.mounted(tmp_path / "small", 64 * PAGE) as folder:
        store(folder).put(key(1), ENTRY)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        reading = store(folder)
        assert reading.get(key(1)) == ENTRY
        reading.put(key(2), ENTRY)
        assert reading.get(key(2)) is None
        assert reading.counts == {"hits": 1, "refusals": 1}
    assert "read-only file system" in capfd.readouterr().err


def test_a_folder_that_is_removed_meanwhile_ends_nothing(tmp_path, capfd):
    filled = store(tmp_path / "cache")
    for file in (tmp_path / "cache").iterdir():
        file.unlink()
    (tmp_path / "cache").rmdir()
    filled.put(key(1), ENTRY)
    assert filled.get(key(1)) is None
    assert filled.counts == {"refusals": 1}
    assert "takes no more" in capfd.readouterr().err


def test_what_a_killed_writer_has_left_goes_once_it_is_old(tmp_path):
    old, young = tmp_path / f"{PENDING}old", tmp_path / f"{PENDING}young"
    for path in (old, young):
        path.write_bytes(ENTRY)
    os.utime(old, (0, 0))
    store(tmp_path)
    assert not old.exists()
    assert young.exists()


def test_an_entry_that_two_processes_write_at_the_same_time_counts_once(tmp_path, monkeypatch):
    mine, theirs = store(tmp_path), store(tmp_path)
    write = mine._write
    monkeypatch.setattr(mine, "_write", lambda *arguments: theirs.put(key(1), ENTRY) or write(*arguments))
    mine.put(key(1), ENTRY)
    assert taken(tmp_path) == len(entries(tmp_path)) * PAGE == PAGE
    assert mine.get(key(1)) == ENTRY
    assert not list(tmp_path.glob(f"{PENDING}*"))
    assert not mine.counts["refusals"] + theirs.counts["refusals"]


def fill(folder: Path, first: int) -> None:
    mine = Store(folder, 20 * PAGE, "the cache")
    for number in range(first, first + 200):
        mine.put(key(number % 300), ENTRY)
        assert mine.get(key((7 * number) % 300)) in (None, ENTRY)
    assert mine.writable
    assert mine.counts["heals"] == 0


def test_processes_that_fill_one_folder_keep_its_bound_and_its_count(tmp_path):
    store(tmp_path)
    processes = [multiprocessing.get_context("fork").Process(target=fill, args=(tmp_path, first)) for first in (0, 100)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANGS_SECONDS)
        assert process.exitcode == 0
    assert taken(tmp_path) == len(entries(tmp_path)) * PAGE <= 20 * PAGE


# --- claims

KEEPER = """
import sys, signal
from pathlib import Path
from gradsync.runtime.data.cache.claims import claimed
with claimed(Path(sys.argv[1]), "key"):
    print("claimed", flush=True)
    signal.pause()
"""


@pytest.fixture
def keeper(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait(HANGS_SECONDS)
    process.stdout.close()


def test_a_claim_goes_with_a_killed_process(tmp_path, keeper):
    keeper.kill()
    keeper.wait(HANGS_SECONDS)
    start = time.monotonic()
    with claimed(tmp_path, "key"):
        assert time.monotonic() - start < claims.LONGEST_SECONDS / 2


def test_one_that_does_nothing_is_not_waited_for_for_ever(tmp_path, keeper, monkeypatch):
    monkeypatch.setattr(claims, "LONGEST_SECONDS", 0.2)
    with monkeypatch.context() as waits_not:
        waits_not.setattr(claims, "time", SimpleNamespace(monotonic=time.monotonic))  # which cannot sleep
        with claimed(tmp_path, "another key"):
            pass
    start = time.monotonic()
    with claimed(tmp_path, "key"):
        assert 0.2 <= time.monotonic() - start < HANGS_SECONDS
    assert keeper.poll() is None
