"""Temporary folders and shared memory go with their maker, or with the next run; nobody else's are touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradsync.lifetimes import leftovers
from left_in_memory import left_in_memory, stays_in_memory
from waiting import HANGS_SECONDS, until

KEEPER = """
import signal, sys
from pathlib import Path
from gradsync.lifetimes import leftovers
with leftovers.temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "deep").mkdir()
    (folder / "deep" / "plan.json").write_text("{}")
    handle, path = leftovers.shared_file(100)
    print(path, flush=True)
    signal.pause()
"""


def test_what_a_killed_run_has_left_goes_with_the_next_and_a_living_one_keeps_its_own(tmp_path):
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    shared = Path(keeper.stdout.readline().strip())
    (kept,) = tmp_path.iterdir()
    assert leftovers.sweep(tmp_path) == []
    assert str(shared) not in leftovers.sweep(leftovers.MEMORY)
    assert shared.stat().st_size == 100
    keeper.kill()
    keeper.wait(HANGS_SECONDS)
    keeper.stdout.close()
    assert (kept / "deep" / "plan.json").exists()
    assert leftovers.sweep(tmp_path) == [str(kept)]
    assert not kept.exists()

    def swept() -> bool:
        """Launches of other tests sweep the memory too, and look whether somebody holds the file."""
        leftovers.sweep(leftovers.MEMORY)
        return not shared.exists()

    until(swept)


def test_a_folder_is_gone_afterwards(tmp_path):
    with leftovers.temporary_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
    with pytest.raises(ZeroDivisionError), leftovers.temporary_folder(tmp_path):
        1 / 0  # noqa: B018
    assert not list(tmp_path.iterdir())


def test_what_is_not_known_to_be_abandoned_stays(tmp_path):
    (tmp_path / "gradsync-own").mkdir()  # without an owner
    elsewhere = tmp_path / "gradsync-elsewhere"
    elsewhere.mkdir()
    (elsewhere / leftovers.OWNER).write_text("another-host")
    target = tmp_path / "target"
    target.mkdir()
    (target / leftovers.OWNER).write_text(os.uname().nodename)
    (tmp_path / "gradsync-link").symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    assert leftovers.sweep(tmp_path) == []
    assert sorted(tmp_path.rglob("*")) == before


def test_shared_memory_that_does_not_fit_is_refused_and_leaves_nothing():
    before = left_in_memory()
    with pytest.raises(OSError, match="No space left"):
        leftovers.shared_file(1 << 50)
    assert not stays_in_memory(before)


def test_memory_is_left_once_its_maker_is_gone():
    handle, path = leftovers.shared_file(8)
    try:
        assert Path(path) not in left_in_memory()
        os.close(handle)
        # or a launch of another test has swept, or looks at it just now
        until(lambda: Path(path) in left_in_memory() or not Path(path).exists())
    finally:
        Path(path).unlink(missing_ok=True)
