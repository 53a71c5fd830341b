"""Checkpoints: what is saved is loaded, what is broken or of another run is not taken."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.runtime import checkpoint
from gradsync.runtime.checkpoint import Checkpoints
from gradsync.runtime.contenders import Record
from small_disk import fill, mounted

pytestmark = pytest.mark.usefixtures("alone")


def checkpoints(folder: Path, key: str = "this run", every_seconds: float = 0.0) -> Checkpoints:
    return Checkpoints(folder / "checkpoint", key, 0, every_seconds)


def state(value: float = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a launch saves: views of flat buffers, counters, records."""
    flat = torch.arange(10, dtype=torch.float64) * value
    record = Record(blocks=[value], rows=[(0, 1, 0, value, None)], accuracy=[(0, 1, 0.5)])
    alike = {"turn": 3, "parameter": flat[2:7], "progress": {"records": {"wfbp": asdict(record)}, "bucket_mib": None}}
    return alike, {"model": [torch.tensor(4), flat.to(torch.bfloat16)], "name": "own"}


def same(loaded: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return loaded.dtype == wanted.dtype and torch.equal(loaded, wanted)
    if isinstance(wanted, dict):
        return loaded.keys() == wanted.keys() and all(same(loaded[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list | tuple):
        return len(loaded) == len(wanted) and all(map(same, loaded, wanted))
    return type(loaded) is type(wanted) and loaded == wanted


def test_what_is_saved_is_loaded(tmp_path):
    checkpoints(tmp_path).save(*state())
    loaded = checkpoints(tmp_path).load()
    assert loaded is not None
    assert same(loaded, state())
    assert not same(loaded, state(2.0))
    assert loaded[0]["progress"]["records"]["wfbp"]["rows"] == [(0, 1, 0, 1.0, None)]


def test_nothing_is_no_checkpoint(tmp_path, capsys):
    assert checkpoints(tmp_path).load() is None
    assert capsys.readouterr().err == ""


def test_values_are_those_of_the_moment(tmp_path):
    alike, own = state()
    one = checkpoints(tmp_path)
    one.save(alike, own)
    alike["parameter"].zero_()
    assert same(one.load(), state())


def test_the_last_one_counts_and_alone_stays(tmp_path):
    one = checkpoints(tmp_path)
    for value in (1.0, 2.0, 3.0):
        one.save(*state(value))
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["3", "latest.json"]
    again = checkpoints(tmp_path)
    assert same(again.load(), state(3.0))
    again.save(*state(4.0))  # goes on counting
    assert json.loads((tmp_path / "checkpoint" / "latest.json").read_text())["number"] == 4
    assert same(checkpoints(tmp_path).load(), state(4.0))


@pytest.mark.parametrize("stopped", ["while writing", "before naming it"])
def test_a_save_that_was_interrupted_leaves_the_one_before(tmp_path, monkeypatch, stopped):
    one = checkpoints(tmp_path)
    one.save(*state(1.0))
    place = (checkpoint.torch, "save") if stopped == "while writing" else (checkpoint, "write_whole")

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*place, killed)
    with pytest.raises(KeyboardInterrupt):
        one.save(*state(2.0))
    monkeypatch.undo()
    again = checkpoints(tmp_path)
    assert same(again.load(), state(1.0))
    again.save(*state(3.0))
    assert same(checkpoints(tmp_path).load(), state(3.0))


@pytest.mark.parametrize(
    "latest",
    ['{"version": 1, "key": "another", "number": 1}', '{"version": 2, "key": "this run", "number": 1}', "{", "[]"],
)
def test_a_checkpoint_of_another_run_is_said_and_not_taken(tmp_path, capsys, latest):
    one = checkpoints(tmp_path)
    one.save(*state())
    (tmp_path / "checkpoint" / "latest.json").write_text(latest)
    assert checkpoints(tmp_path).load() is None
    message = capsys.readouterr().err
    assert "latest.json is of another run (settings, plans or ranks differ): starting anew" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("broken", ["missing", "empty", "text", "half", "other"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, broken):
    checkpoints(tmp_path).save(*state())
    path = tmp_path / "checkpoint" / "1" / "rank0.pt"
    whole = path.read_bytes()
    path.unlink()
    if broken == "other":
        torch.save([1, 2], path)
    elif broken != "missing":
        path.write_bytes({"empty": b"", "text": b"nothing", "half": whole[: len(whole) // 2]}[broken])
    with pytest.raises(InputError) as refused:
        checkpoints(tmp_path).load()
    assert str(refused.value).startswith(f"checkpoint {path}: can't be read: ")
    assert str(refused.value).endswith(f"delete {tmp_path / 'checkpoint'} to start anew")
    assert "\n" not in str(refused.value)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoints(tmp_path).save(*state())
    torch.save({"alike": {}, "own": Harmful()}, tmp_path / "checkpoint" / "1" / "rank0.pt")
    with pytest.raises(InputError, match=r"rank0\.pt: can't be read"):
        checkpoints(tmp_path).load()
    assert not (tmp_path / "harmed").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "checkpoint").write_text("a file")
    with pytest.raises(InputError, match=r"checkpoint.*can't be written") as refused:
        checkpoints(tmp_path).save(*state())
    assert "\n" not in str(refused.value)


def test_on_a_full_disk_the_last_one_stays_and_training_goes_on(tmp_path, capsys):
    with mounted(tmp_path / "small", 1 << 20) as small:
        one = checkpoints(small)
        one.save(*state(1.0))
        filling = fill(small, leaving=8192)
        alike, own = state(2.0)
        one.save(alike | {"large": torch.zeros(100_000)}, own)
        message = capsys.readouterr().err
        assert "no space left in" in message
        assert "training goes on; interrupted, it would go on from the last one" in message
        assert sorted(path.name for path in (small / "checkpoint").iterdir()) == ["1", "latest.json"]
        assert same(checkpoints(small).load(), state(1.0))
        filling.unlink()
        one.save(*state(3.0))
        assert same(checkpoints(small).load(), state(3.0))
        assert sorted(path.name for path in (small / "checkpoint").iterdir()) == ["3", "latest.json"]


def test_a_name_that_does_not_fit_leaves_the_one_before(tmp_path, monkeypatch, capsys):
    one = checkpoints(tmp_path)
    one.save(*state(1.0))

    def full(path: Path, text: str) -> None:
        raise disk.refusal(OSError(28, ""), path)

    monkeypatch.setattr(checkpoint, "write_whole", full)
    one.save(*state(2.0))
    assert "training goes on" in capsys.readouterr().err
    monkeypatch.undo()
    assert same(checkpoints(tmp_path).load(), state(1.0))
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["1", "latest.json"]


def test_too_little_room_for_checkpoints_is_said_before_training(tmp_path):
    assert checkpoint.room(tmp_path, 1000, 2) == ""
    assert "beside the last one" in checkpoint.room(tmp_path, 10**15, 2)


def test_it_is_due_once_the_seconds_have_passed(tmp_path, monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(checkpoint, "time", clock)
    one = checkpoints(tmp_path, every_seconds=10.0)
    assert not one.due()
    clock.now = 109.9
    assert not one.due()
    clock.now = 110.0
    assert one.due()
    one.save(*state())
    assert not one.due()
    assert checkpoints(tmp_path, every_seconds=0.0).due()


def test_a_run_that_is_complete_leaves_nothing(tmp_path):
    one = checkpoints(tmp_path)
    one.save(*state())
    one.clear()
    assert not (tmp_path / "checkpoint").exists()
    one.clear()


def test_one_whose_removal_is_interrupted_is_none(tmp_path, monkeypatch):
    one = checkpoints(tmp_path)
    one.save(*state())

    def interrupted(folder: Path, **_: object) -> None:
        (folder / "1" / "rank0.pt").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.clear()
    assert checkpoints(tmp_path).load() is None


def test_a_checkpoint_of_other_ranks_is_refused_and_stays(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint"
    Checkpoints(folder, "on one rank", 0, 0.0, "this launch").save(*state())
    assert same(Checkpoints(folder, "on one rank", 0, 0.0, "this launch").load(), state())
    assert Checkpoints(folder, "with other options", 0, 0.0, "another launch").load() is None
    monkeypatch.setattr(checkpoint.dist, "get_world_size", lambda: 2)
    with pytest.raises(InputError, match=r"of the same launch on 1 ranks, .* and there are 2 now: go on with 1 ranks"):
        Checkpoints(folder, "on two ranks", 0, 0.0, "this launch").load()
    assert (folder / "latest.json").exists()
