"""What is carried over from third-party logs: read row by row, and held against the logs where these are there.

Tests on the published files need the folder that GRADSYNC_EXTERNAL_DATA names; all others write their own logs.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from gradsync.errors import InputError
from gradsync.measure import carried, third_party
from project_copy import ROOT

PUBLISHED = os.environ.get(third_party.VARIABLE)
needs_published = pytest.mark.skipif(
    not PUBLISHED, reason=f"{third_party.VARIABLE} names no folder with the published logs"
)
CONTENT = {
    "allreduce2.log": b"# OSU\n2,4 30.5\n2,8 31.0\n",
    "allreduce8.log": b"8,4 80.0\n8,8 81.0\n",
    "tmp8comm.log": b"[0, 10, 7.0, 1, 0]\n[1, 2, 7.0, 0, 0]\n[0, 10, 5.5, 1, 0]\n[1, 2, 5.5, 0.25, 0]\n",
}
LAYERS = "# from a log\nelements,backward_microseconds,allreduce_microseconds\n12,5.5,1.25\n"
ALLREDUCES = "nodes,bytes,microseconds\n2,4,30.5\n2,8,31\n8,4,80\n8,8,81\n"


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv(third_party.VARIABLE, raising=False)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the two tables that `CONTENT` makes, in place of those of the repository."""
    for name, file, text in (("LAYERS", "layers.csv", LAYERS), ("ALLREDUCES", "allreduces.csv", ALLREDUCES)):
        (tmp_path / file).write_text(text)
        monkeypatch.setattr(carried, name, tmp_path / file)
    return tmp_path


@pytest.fixture
def published(tables: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small logs that stand for the published ones."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    monkeypatch.setattr(third_party, "SHA256", digests)
    folder = tables / "published"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    return folder


# The check


@pytest.mark.parametrize("inside", ["", "bcaffe", "logdata"])
def test_tables_that_agree_with_the_logs_are_said_to(published, tmp_path, inside):
    named = published
    if inside:
        named = tmp_path / "named"
        named.mkdir()
        published.rename(named / inside)
    status = third_party.check(str(named), tmp_path / "out")
    assert status == {"agree": True, "origin": f"folder {named}", "sha256": third_party.SHA256}
    assert json.loads((tmp_path / "out" / "status.json").read_text()) == status


def test_the_environment_names_the_folder_and_the_configuration_wins(published, tmp_path, monkeypatch):
    monkeypatch.setenv(third_party.VARIABLE, str(published))
    assert third_party.check(None, tmp_path / "out")["origin"] == f"folder {published}"
    monkeypatch.setenv(third_party.VARIABLE, str(tmp_path / "nosuch"))
    assert third_party.check(str(published), tmp_path / "out")["origin"] == f"folder {published}"
    with pytest.raises(InputError, match=r"nosuch does not exist"):
        third_party.check(None, tmp_path / "out")


def test_without_a_folder_it_says_what_to_name(tmp_path):
    with pytest.raises(InputError, match=r"no folder named: set external_data .* no figure and no claim needs them"):
        third_party.check(None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", CONTENT)
def test_a_changed_or_missing_log_is_refused(published, tmp_path, name):
    (published / name).write_bytes(CONTENT[name] + b"\n")
    digest = hashlib.sha256(CONTENT[name] + b"\n").hexdigest()
    with pytest.raises(InputError, match=rf"{name} is not the published file: SHA-256 {digest}, expected"):
        third_party.check(str(published), tmp_path / "out")
    (published / name).unlink()
    with pytest.raises(InputError, match=name):
        third_party.check(str(published), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "wanted"),
    [
        ("layers.csv", "5.5", "5.6", r"layers\.csv: row 1 is .*5\.6.*the log says .*5\.5"),
        ("layers.csv", "1.25\n", "1.25\n12,5.5,1.25\n", r"layers\.csv: has 2 rows, and the log 1"),
        ("allreduces.csv", "8,8,81", "8,16,81", r"allreduces\.csv: row 4 is .*bytes=16.*bytes=8"),
        ("allreduces.csv", "8,8,81\n", "", r"allreduces\.csv: has 3 rows, and the log 4"),
    ],
)
def test_a_table_that_differs_from_its_log_is_refused(published, tmp_path, file, old, new, wanted):
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new))
    with pytest.raises(InputError, match=wanted):
        third_party.check(str(published), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Logs

ROW = "I0219 13:29:27.119763 66221 distributed.cpp:112] [{}]"
ITERATION = ["0, 30, 900.5, 11, 0", "1, 2, 900.5, 3, 0", "2, 500, 4e+01, 12.5, 0", "3, 4, 40, 0, 0"]


def log(rows: list[str]) -> str:
    return "".join(ROW.format(row) + "\n" for row in rows)


def test_a_weight_and_its_bias_are_one_layer_of_the_last_iteration():
    slow = [row.replace("900.5", "7.5e+03") for row in ITERATION]
    wanted = [(32, 900.5, 14.0), (504, 40.0, 12.5)]
    assert third_party.parsed_layers(log([*slow, *ITERATION]), "a log") == wanted
    assert third_party.parsed_layers(log([*ITERATION, *slow]), "a log") == [(32, 7500.0, 14.0), wanted[1]]


@pytest.mark.parametrize(
    "row",
    [
        *("2, 500, 40, 12", "2, 500, fast, 12, 0", "2, 500, 4.0.0, 12, 0", "2, 500, -40, 12, 0"),
        *("2, 500, nan, 12, 0", "2, 0, 40, 12, 0", "2, -500, 40, 12, 0", "two, 500, 40, 12, 0"),
    ],
)
def test_a_corrupt_row_is_named_by_file_and_line(row):
    with pytest.raises(InputError, match=r"layers\.log, line 7: not a row"):
        third_party.parsed_layers(log([*ITERATION, *ITERATION[:2], row, ITERATION[3]]), "layers.log")


@pytest.mark.parametrize(
    "rows",
    [[], ITERATION[:3], [*ITERATION, *ITERATION[:1]], ITERATION[2:], [ITERATION[0], *ITERATION[2:]]],
    ids=["none", "bias missing", "last iteration cut", "begins late", "one missing"],
)
def test_an_incomplete_iteration_is_refused(rows):
    with pytest.raises(InputError, match=r"layers\.log: the last iteration has \d rows"):
        third_party.parsed_layers(log(rows), "layers.log")


def test_an_all_reduce_log_becomes_points():
    text = "\n# OSU MPI Allreduce Latency Test\n# Size  Avg Latency(us)\n8,4      82.28\n8,1048576  9000\n"
    assert third_party.parsed_allreduces(text, "osu.log") == [(8, 4, 82.28), (8, 1048576, 9000.0)]


@pytest.mark.parametrize("row", ["8 4 82.28", "8,4", "8,4 fast", "8,4 8.2.8", "8,4 -8.2", "8,4 82.28 more"])
def test_a_corrupt_row_of_an_all_reduce_log_is_named(row):
    with pytest.raises(InputError, match=r"osu\.log, line 3: not a row"):
        third_party.parsed_allreduces(f"# header\n8,4 82.28\n{row}\n", "osu.log")


# What is carried over


def test_carried_layers_become_a_workload(tables):
    (tables / "layers.csv").write_text(LAYERS + "504,40,12.5\n")
    load = carried.layer_log(forward_share=0.5)
    # backward order
    assert [(layer.name, layer.elements, layer.bytes) for layer in load.layers] == [
        ("layer1", 504, 2016),
        ("layer0", 12, 48),
    ]
    assert [layer.backward_seconds for layer in load.layers] == pytest.approx([40e-6, 5.5e-6], rel=1e-12)
    assert load.forward_seconds == pytest.approx(0.5 * 45.5e-6, rel=1e-12)
    assert "0.5 of the backward seconds" in load.provenance["assumed"]
    sizes, seconds = carried.layer_allreduces()
    np.testing.assert_array_equal(sizes, [48, 2016])
    np.testing.assert_allclose(seconds, [1.25e-6, 12.5e-6], rtol=1e-12)


@pytest.mark.parametrize(
    "row", ["12,5.5", "12,5.5,1,1", "0,5,1", "1.5,5,1", "12,-5,1", "12,nan,1", "12,inf,1", "a,5,1"]
)
def test_a_corrupt_row_of_a_table_is_named(tables, row):
    (tables / "layers.csv").write_text(f"{LAYERS}{row}\n")
    with pytest.raises(InputError, match=r"layers\.csv, line 4: not a row elements,.*: restore the file"):
        carried.layer_log(forward_share=0.5)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "nodes,bytes,microseconds\n", "nodes,bytes,microseconds\n4,4,1\n"])
def test_another_file_is_not_taken_for_a_table(tables, text):
    (tables / "allreduces.csv").write_text(text)
    with pytest.raises(InputError, match=r"allreduces\.csv: .*restore the file"):
        carried.allreduces(2)


def test_what_is_carried_over_is_googlenet_on_a_k80():
    load = carried.layer_log(forward_share=0.5)
    assert load.bytes == 4 * 13_379_136
    assert load.backward_seconds == pytest.approx(0.2053, abs=5e-5)
    assert load.layers[-1].elements == 9408 + 64  # 7 x 7 x 3 x 64 weights next to the input
    assert load.layers[0].elements == 1000 * 1024 + 1024  # the classifier's gradient is ready first; bias padded
    assert len(load.layers) == 64
    sizes, seconds = carried.layer_allreduces()
    assert sizes.sum() == load.bytes
    assert seconds.sum() == pytest.approx(0.3107, abs=5e-5)
    for nodes in (2, 8):
        sizes, seconds = carried.allreduces(nodes)
        assert (sizes.min(), sizes.max()) == (4, 2**20)
        assert (seconds > 0).all()
        assert (np.diff(sizes) > 0).all()


def test_each_table_names_its_source():
    text = carried.LAYERS.read_text() + carried.ALLREDUCES.read_text()
    assert text.count(third_party.COMMIT) == 2
    for name, digest in third_party.SHA256.items():
        assert f"logdata/{name}, SHA-256 {digest}" in text


@needs_published
def test_what_is_carried_over_agrees_with_the_published_logs(tmp_path):
    assert third_party.check(PUBLISHED, tmp_path)["agree"] is True
