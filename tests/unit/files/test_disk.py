"""Full, read-only and limited disks are named as such, before anything runs if it can be known."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.files.results import write_whole
from gradsync.lifetimes import run_lock
from gradsync.slurm import local_files
from small_disk import fill, mounted

ROOT = Path(__file__).parents[3]
TRAINING = ["train", "--batch", "8", "--iterations", "4", "--schedule", "wfbp"]
TRAINING += ["--peers", str(ROOT / "config" / "peers.yaml")]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left in"),
        (errno.EDQUOT, "your quota in"),
        (errno.EROFS, "is on a read-only file system"),
        (errno.EACCES, "you may not write into"),
        (errno.EFBIG, "larger than a file may be"),
    ],
)
def test_what_a_disk_refuses_is_said_in_words(tmp_path, number, words):
    with pytest.raises(InputError, match=words) as refused, disk.explain_errors(tmp_path / "deep" / "a.json"):
        raise OSError(number, "as the kernel says it")
    assert str(refused.value).startswith(f"{tmp_path / 'deep' / 'a.json'}: can't be written: ")
    assert isinstance(refused.value, disk.FullError) is (number in (errno.ENOSPC, errno.EDQUOT))


def test_the_nearest_folder_that_is_there_is_named(tmp_path):
    assert disk.existing(tmp_path / "a" / "b") == tmp_path
    assert disk.room(tmp_path / "a") == pytest.approx(disk.room(tmp_path), rel=0.5)


def test_too_little_room_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(disk.FullError, match=r"no space left in .*: the results takes? 1000000000\.0 GB, .* are free"):
        disk.refuse(tmp_path, 1e18, "the results")
    disk.refuse(tmp_path, 1, "the results")


def test_a_full_disk_costs_the_file_that_is_written_and_no_other(tmp_path):
    with mounted(tmp_path / "small", 1 << 20) as small:
        write_whole(small / "result.json", "earlier")
        fill(small)
        with pytest.raises(disk.FullError, match=rf"no space left in {small} \(0\.0 MB free\)"):
            write_whole(small / "result.json", "x" * 10_000)
        assert (small / "result.json").read_text() == "earlier"
        assert sorted(path.name for path in small.iterdir()) == ["filling", "result.json"]


@pytest.mark.parametrize("command", ["train", "measure"])
def test_a_full_disk_is_said_before_anything_is_started(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setattr("gradsync.runtime.launch.launch", None)  # nothing may start
    with mounted(tmp_path / "small", 1 << 20) as small:
        fill(small)
        arguments = TRAINING if command == "train" else ["measure", "layers", "--model", "lenet5"]
        assert main([*arguments, "--output", str(small / "run")]) == 2
        assert "no space left in" in capsys.readouterr().err
        assert [path.name for path in small.iterdir()] == ["filling"]


def test_a_read_only_folder_is_said_before_anything_is_started(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gradsync.runtime.launch.launch", None)
    with mounted(tmp_path / "small", 1 << 20) as small:
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        assert main([*TRAINING, "--output", str(small / "run")]) == 2
        assert f"{small} is on a read-only file system" in capsys.readouterr().err


def test_a_lock_that_does_not_fit_is_no_lock(tmp_path):
    with mounted(tmp_path / "small", 1 << 20) as small:
        fill(small)
        with pytest.raises(disk.FullError, match="no space left"), run_lock.held(small, "train"):
            pass
        assert [path.name for path in small.iterdir()] == ["filling"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_in_a_locked_one_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(local_files, "LONGEST_FOLDER", 1000)
    locked = tmp_path / "locked"
    (locked / "inner").mkdir(parents=True)
    locked.chmod(0o600)
    try:
        with pytest.raises(InputError, match=f"you may not write into {locked}: take another folder"):
            disk.refuse(locked / "inner", 1, "a result")
        with pytest.raises(InputError, match=f"{locked}/inner: can't be written: you may not write into {locked}"):
            local_files.at(locked / "inner")
    finally:
        locked.chmod(0o700)
