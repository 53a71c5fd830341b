"""Result files: what is written is read back, what is broken is refused, and an earlier file is never lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradsync.errors import InputError
from gradsync.files.results import CONTENDERS, Result, begin_results, machine, write_contenders, write_whole


def result(**changes: object) -> Result:
    content = {
        "rung": "measured",
        "paper": "mgwfbp",
        "table": "training",
        "scheme": "wfbp",
        "model": "lenet5",
        "ranks": 2,
        "settings": {"batch": 32, "nested": {"b": [1, 2], "a": None}},
        "provenance": {"cores": 2},
        "summary": {"iteration_seconds": 0.1 + 0.2, "tiny": 5e-324},
        "samples": {"iteration_seconds": [0.1 + 0.2, 5e-324]},
        "conformance": {"oracle_difference": 1e-16},
        "notes": ["2 ranks share 1 core"],
    }
    return Result.model_validate({**content, **changes})


def test_a_result_is_read_as_it_was_written(tmp_path):
    path = result().save(tmp_path / "runs" / "a")
    assert path == tmp_path / "runs" / "a" / "result.json"
    assert Result.load(path) == result()
    assert Result.load(path).key() == result().key()


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", "Invalid JSON"),
        ('{"version": 1, "rung": "meas', "Invalid JSON"),
        ("[]", "top level"),
        ('{"rung": "measured", "model": "m", "ranks": 2}', "scheme: is missing"),
        (json.dumps({**result().model_dump(), "rung": "guessed"}), "rung: "),
        (json.dumps({**result().model_dump(), "ranks": 0}), "ranks: "),
        (json.dumps({**result().model_dump(), "summary": {"seconds": "fast"}}), "summary.seconds: "),
        (json.dumps({**result().model_dump(), "sumary": {}}), "sumary: "),
        (json.dumps({**result().model_dump(), "version": 1}), "version 1; this gradsync reads version 2"),
        (json.dumps({**result().model_dump(), "samples": {"seconds": 1.0}}), "samples.seconds: "),
    ],
)
def test_a_broken_result_is_refused_with_file_and_place(tmp_path, content, wanted):
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        Result.load(path)
    assert str(path) in str(refused.value)
    assert wanted in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_result_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "result.json").write_bytes(b"\xff\x00\x80")
    with pytest.raises(InputError, match="not a result"):
        Result.load(tmp_path / "result.json")


def test_a_missing_result_is_refused(tmp_path):
    with pytest.raises(InputError, match="can't be read"):
        Result.load(tmp_path / "result.json")


def test_values_that_are_no_numbers_survive(tmp_path):
    path = result(summary={"ratio": float("inf"), "loss": float("nan")}, samples={"x": [float("nan")]}).save(tmp_path)
    summary = Result.load(path).summary
    assert summary["ratio"] == float("inf")
    assert summary["loss"] != summary["loss"]
    (sample,) = Result.load(path).samples["x"]
    assert sample != sample
    assert Result.load(path).key() == Result.load(path).key()


def test_the_key_depends_on_content_and_on_nothing_else(tmp_path):
    assert result().key() == result().key()
    again = result(settings={"nested": {"a": None, "b": [1, 2]}, "batch": 32})  # another order of keys
    assert again.key() == result().key()
    changed = [
        result(scheme="mgwfbp"),
        result(ranks=3),
        result(rung="simulated"),
        result(settings={"batch": 33}),
        result(summary={"iteration_seconds": 0.3, "tiny": 5e-324}),
        result(provenance={"cores": 4}),
        result(conformance={}),
        result(notes=[]),
    ]
    assert len({result().key(), *(other.key() for other in changed)}) == len(changed) + 1


def test_the_key_is_the_same_in_every_version_of_this_format():
    fixed = Result(rung="measured", scheme="wfbp", model="lenet5", ranks=2, summary={"x": 1.5})
    # a change here imports every earlier run into MLflow a second time
    assert fixed.key() == "9798cd0c9af47330fb85bcbecceb56d98072188a6d4cc0bc967ba65d3d463f6d"


def test_the_list_of_a_launch_tells_results_that_were_measured_again(tmp_path):
    texts = []
    for seconds in (1.0, 2.0, 1.0):
        for name in ("wfbp", "mgwfbp"):
            summary = {"seconds": seconds}
            Result(rung="measured", scheme=name, model="lenet5", ranks=2, summary=summary).save(tmp_path / name)
        write_contenders(tmp_path, ["wfbp", "mgwfbp"])
        texts.append((tmp_path / CONTENDERS).read_text())
    assert list(json.loads(texts[0])) == ["wfbp", "mgwfbp"]
    assert texts[0] != texts[1]
    assert texts[0] == texts[2]


def test_write_whole_makes_folders_and_replaces(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_whole(path, "one")
    write_whole(path, "two")
    assert path.read_text() == "two"
    assert [file.name for file in path.parent.iterdir()] == ["b.txt"]


@pytest.mark.parametrize("failing", ["write_bytes", "replace"])
def test_an_earlier_file_survives_a_write_that_fails(tmp_path, monkeypatch, failing):
    path = tmp_path / "b.txt"
    write_whole(path, "earlier")
    original = Path.write_bytes

    def full(self: Path, *arguments: object) -> None:
        if failing == "write_bytes":
            original(self, b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, failing, full)
    with pytest.raises(InputError, match=r"b\.txt: can't be written: no space left"):
        write_whole(path, "a much longer new text")
    monkeypatch.undo()
    assert path.read_text() == "earlier"
    assert [file.name for file in tmp_path.iterdir()] == ["b.txt"]  # nothing half written stays


def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "b.txt"
    write_whole(path, "earlier")

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "earlier"
    assert [file.name for file in tmp_path.iterdir()] == ["b.txt"]


def test_a_new_launch_begins_without_the_list_and_the_unfinished_files_of_an_earlier_one(tmp_path, monkeypatch):
    result().save(tmp_path / "a")
    write_contenders(tmp_path, ["a"])
    kept = [".hidden", ".a.hidden", ".a.longer_than8.csv", "metrics.12345678.csv"]
    for name in kept:
        (tmp_path / "a" / name).write_text("somebody's own")
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: None)  # it had no time to
        killed.setattr(Path, "replace", lambda *_: None)
        for name in ("metrics.csv", "result.json", "plain"):
            write_whole(tmp_path / "a" / name, "half writ")
    assert len(list((tmp_path / "a").iterdir())) == 1 + len(kept) + 3
    begin_results(tmp_path)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted([*kept, "result.json"])
    assert not (tmp_path / CONTENDERS).exists()
    begin_results(tmp_path / "not there")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="can't be written"):
        write_whole(tmp_path / "file" / "b.txt", "new")
    with pytest.raises(InputError, match="can't be written"):
        result().save(tmp_path / "file" / "run")


def test_the_machine_is_described():
    facts = machine()
    assert facts["cores"] >= 1
    assert all(facts[key] for key in ("gradsync", "python", "system", "processor"))
