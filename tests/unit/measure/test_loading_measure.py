"""What a training waits for photographs: a run per loader, which levels of the cache give, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.files.results import Result
from gradsync.measure import loading

SMALL = ["--model", "resnet18", "--size", "32", "--batch", "2", "--photographs", "4", "--blocks", "1"]


def test_every_loader_has_a_run_and_its_own_level_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caches = {}

    def kept(name: str, *folders: Path) -> object:
        caches[name] = made(name, *folders)
        return caches[name]

    made = loading._cache
    monkeypatch.setattr(loading, "_cache", kept)
    assert main(["measure", "loading", *SMALL, "--iterations", "1", "--output", str(tmp_path)]) == 0
    assert list(json.loads((tmp_path / "schemes.json").read_text())) == list(loading.LOADERS)
    for name in loading.LOADERS:
        run = Result.load(tmp_path / name / "result.json")
        assert (run.rung, run.model, run.scheme, run.ranks) == ("measured", "resnet18_32", name, 1)
        assert run.samples.keys() == {"io_seconds", "exposed_io_seconds", "iteration_seconds", "throughput"}
        assert run.samples["throughput"][0] == pytest.approx(2 / run.samples["iteration_seconds"][0])
        assert loading.MADE_UP in run.notes
    assert caches["naive"] is None
    # of four photographs each was read, or decoded, once: in the first epoch
    assert caches["local_files"].counts()["disk_misses"] == 4
    assert caches["local_files"].made["decoded"] > 4
    for name in ("datacache", "datacache_reduced"):
        assert caches[name].counts()["memory_misses"] == 4
        assert caches[name].counts()["memory_hits"] >= 4
    assert caches["datacache_reduced"].reduced
    assert not caches["datacache"].reduced


def test_a_cache_without_room_for_all_photographs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "ENOUGH", 1)
    assert main(["measure", "loading", *SMALL, "--output", str(tmp_path)]) == 2
    refused = capsys.readouterr().err
    assert "has no room for all 4 photographs on the disk level of the cache" in refused
    assert "Traceback" not in refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--photographs", "1"], "--photographs 1: at least --batch 2"),
        (["--blocks", "0"], "--blocks 0"),
        (["--model", "resnet19"], "model 'resnet19' does not exist"),
        (["--data-folder", "/nowhere"], "folder /nowhere does not exist"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", "loading", *SMALL, "--output", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
