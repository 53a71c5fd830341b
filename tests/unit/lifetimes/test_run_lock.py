"""A folder has one run at a time: a second one is refused at once by name, and a dead one's lock is taken over."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.errors import InputError
from gradsync.lifetimes import lifeline, run_lock
from waiting import HANGS_SECONDS

HOLDER = """
import signal, sys
from pathlib import Path
from gradsync.lifetimes import run_lock
with run_lock.held(Path(sys.argv[1]), "train"):
    print(flush=True)
    signal.pause()
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate(timeout=HANGS_SECONDS)


def test_a_second_run_is_refused_with_who_holds_the_folder(tmp_path, holder):
    refused = pytest.raises(InputError, match=rf"another run writes there: train on .*, process {holder.pid}, since 20")
    with refused, run_lock.held(tmp_path, "train"):
        pass
    assert run_lock.holder(tmp_path / run_lock.NAME)["process"] == holder.pid


def test_a_second_training_is_refused_before_it_measures_anything(tmp_path, holder, capsys):
    options = ["--schedule", "wfbp", "--peers", str(ROOT / "config" / "peers.yaml"), "--output", str(tmp_path)]
    assert main(["train", "--batch", "8", "--iterations", "4", *options]) == 2
    message = capsys.readouterr().err
    assert f"process {holder.pid}" in message
    assert "measure" not in message
    assert [path.name for path in tmp_path.iterdir()] == [run_lock.NAME]


def test_the_lock_of_a_killed_run_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait(HANGS_SECONDS)
    assert (tmp_path / run_lock.NAME).exists()
    with run_lock.held(tmp_path, "train"):
        assert json.loads((tmp_path / run_lock.NAME).read_text())["process"] == os.getpid()
    assert not list(tmp_path.iterdir())  # nothing is left of it


def test_that_of_another_host_is_named_when_it_is_taken_over(tmp_path, capsys):
    (tmp_path / run_lock.NAME).write_text('{"what": "train", "host": "n7", "process": 4}')
    with run_lock.held(tmp_path, "train"):
        pass
    assert "taken over from train on n7, process 4" in capsys.readouterr().err


def test_folders_that_nothing_is_written_to_go_with_the_lock(tmp_path):
    (tmp_path / "there").mkdir()
    with run_lock.held(tmp_path / "there" / "a" / "b", "train"):
        pass
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["there"]
    with run_lock.held(tmp_path / "there" / "a" / "b", "train"):
        (tmp_path / "there" / "a" / "b" / "result.json").touch()
    assert (tmp_path / "there" / "a" / "b" / "result.json").exists()


def test_a_broken_lock_file_is_no_obstacle(tmp_path):
    for content in (b"", b"nothing", b"[1]", b"\xff\xfe"):
        (tmp_path / run_lock.NAME).write_bytes(content)
        with run_lock.held(tmp_path, "train"):
            pass


def test_a_holder_that_is_about_to_end_is_waited_for(tmp_path):
    """Its launcher was killed: it will end, and the same command shall go on without being asked twice."""
    launcher = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    leader = lifeline.Leader.this()._replace(pid=launcher.pid, started=lifeline.started(launcher.pid) or 0)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {lifeline.VARIABLE: str(leader)},
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(InputError), run_lock.held(tmp_path, "train"):
        pass
    launcher.kill()
    launcher.wait(HANGS_SECONDS)
    ender = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {holder.pid}"])
    with run_lock.held(tmp_path, "train"):
        assert holder.wait(HANGS_SECONDS) == -signal.SIGKILL
    ender.wait(HANGS_SECONDS)


def test_removing_a_lock_never_gives_it_to_two(tmp_path, monkeypatch):
    """Between opening the file and locking it, its holder may have removed it: a lock on that file holds nothing."""
    lock, real = tmp_path / run_lock.NAME, run_lock.fcntl.flock
    taken = []

    def removed_first(file, how):
        if not taken:
            lock.unlink()
        taken.append(os.fstat(file.fileno()).st_ino)
        real(file, how)

    monkeypatch.setattr(run_lock.fcntl, "flock", removed_first)
    with run_lock.held(tmp_path, "train"):
        assert lock.stat().st_ino == taken[-1]
    assert len(taken) == 2


def test_a_folder_that_its_holder_takes_away_is_made_again(tmp_path, monkeypatch):
    folder, makes = tmp_path / "run", Path.mkdir

    def taken_away(path: Path, **how: object) -> None:
        monkeypatch.setattr(Path, "mkdir", makes)
        makes(path, **how)
        path.rmdir()

    monkeypatch.setattr(Path, "mkdir", taken_away)
    with run_lock.held(folder, "train"):
        assert (folder / run_lock.NAME).exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_warned_of_and_written_to(tmp_path, monkeypatch, capsys, number):
    def refused(file, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(run_lock.fcntl, "flock", refused)
    with run_lock.held(tmp_path, "train"):
        assert json.loads((tmp_path / run_lock.NAME).read_text())["process"] == os.getpid()
    assert "its file system has no locks: start no second run there" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("job", "end"), [("", "kill 4, on n7"), ("81", "scancel 81")])
def test_the_refusal_says_how_to_end_a_run_on_another_host(tmp_path, job, end):
    """The file system shows that it lives; its process number means nothing on this host."""
    lock = tmp_path / run_lock.NAME
    lock.write_text(json.dumps({"what": "train", "host": "n7", "process": 4, "leader": "there/4/1", "job": job}))
    with lock.open() as other:
        run_lock.fcntl.flock(other, run_lock.fcntl.LOCK_EX)
        with pytest.raises(InputError) as refused, run_lock.held(tmp_path, "train"):
            pass
    assert f"train on n7, process 4, since just now: wait for it, end it ({end})" in str(refused.value)


def test_a_used_up_quota_is_said_when_the_lock_is_written(tmp_path, monkeypatch):
    def refused(lock, what):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(run_lock, "_write", refused)
    with pytest.raises(InputError, match=r"your quota in .* is used up"), run_lock.held(tmp_path / "new", "train"):
        pass
    assert not (tmp_path / "new").exists()
