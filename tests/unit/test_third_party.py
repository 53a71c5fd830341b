"""Third-party logs: obtained whole and unchanged or not at all, and read row by row.

Tests on the published files need the folder that GRADSYNC_EXTERNAL_DATA names; all others write their own logs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gradsync.errors import InputError
from gradsync.measure import third_party
from waiting import HANGS_SECONDS

PUBLISHED = os.environ.get(third_party.VARIABLE)
needs_published = pytest.mark.skipif(
    not PUBLISHED, reason=f"{third_party.VARIABLE} names no folder with the published logs"
)
CONTENT = {
    "allreduce2.log": b"2,4 30.0\n2,8 31.0\n",
    "allreduce8.log": b"8,4 80.0\n8,8 81.0\n",
    "tmp8comm.log": b"[0, 10, 5.0, 1, 0]\n[1, 2, 5.0, 0, 0]\n",
}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small logs that stand for the published ones; no folder is named."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    monkeypatch.setattr(third_party, "SHA256", digests)
    monkeypatch.delenv(third_party.VARIABLE, raising=False)
    folder = tmp_path / "published"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


# Obtaining


@pytest.mark.parametrize("inside", ["", "bcaffe", "logdata"])
def test_logs_are_copied_from_a_folder(published, tmp_path, inside):
    named = published
    if inside:
        named = tmp_path / "named"
        named.mkdir()
        published.rename(named / inside)
    status = third_party.obtain(str(named), tmp_path / "out")
    assert status["available"] is True
    assert status["origin"] == f"folder {named}"
    assert status["sha256"] == third_party.SHA256
    assert third_party.status(tmp_path / "out") == status
    assert {name: (tmp_path / "out" / name).read_bytes() for name in CONTENT} == CONTENT


def test_the_environment_names_the_folder_and_the_configuration_wins(published, tmp_path, monkeypatch):
    monkeypatch.setenv(third_party.VARIABLE, str(published))
    assert third_party.obtain(None, tmp_path / "out")["origin"] == f"folder {published}"
    monkeypatch.setenv(third_party.VARIABLE, str(tmp_path / "nosuch"))
    assert third_party.obtain(str(published), tmp_path / "out")["origin"] == f"folder {published}"
    with pytest.raises(InputError, match=r"nosuch does not exist"):
        third_party.obtain(None, tmp_path / "out")


@pytest.mark.parametrize("name", CONTENT)
def test_a_changed_file_is_refused_and_nothing_is_copied(published, tmp_path, name):
    (published / name).write_bytes(CONTENT[name] + b"\n")
    found = hashlib.sha256(CONTENT[name] + b"\n").hexdigest()
    with pytest.raises(InputError, match=rf"{name} is not the published file: SHA-256 {found}, expected"):
        third_party.obtain(str(published), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", CONTENT)
def test_a_missing_file_is_refused_and_nothing_is_copied(published, tmp_path, name):
    (published / name).unlink()
    with pytest.raises(InputError, match=name):
        third_party.obtain(str(published), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_without_folder_and_network_the_reason_is_kept(published, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(third_party, "ADDRESS", address)
    status = third_party.obtain(None, tmp_path / "out")
    assert status["available"] is False
    assert address in status["reason"]
    assert "refused" in status["reason"]
    assert "set external_data" in status["reason"]
    assert third_party.VARIABLE in status["reason"]
    assert third_party.status(tmp_path / "out") == status
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["status.json"]


Serve = Callable[[Callable[[socket.socket, str], None]], str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """serve(answer): an address whose connections are handed to `answer` with the path asked for."""
    monkeypatch.setattr(third_party, "FETCH_SECONDS", HANGS_SECONDS)
    server = socket.create_server(("127.0.0.1", 0))
    threads = []

    def start(answer: Callable[[socket.socket, str], None]) -> str:
        def loop() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    asked = connection.recv(65536).decode()
                    try:
                        answer(connection, asked.split()[1])
                    except OSError:
                        continue  # the client has gone

        threads.append(threading.Thread(target=loop, daemon=True))
        threads[0].start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(third_party, "ADDRESS", address)
        return address

    yield start
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    for thread in threads:
        thread.join(HANGS_SECONDS)
        assert not thread.is_alive()


def head(length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode()


def test_logs_are_fetched_where_no_folder_is_named(published, tmp_path, serve):
    address = serve(
        lambda connection, path: connection.sendall(head(len(CONTENT[path.strip("/")])) + CONTENT[path.strip("/")])
    )
    status = third_party.obtain(None, tmp_path / "out")
    assert status["available"] is True
    assert status["origin"] == address
    assert {name: (tmp_path / "out" / name).read_bytes() for name in CONTENT} == CONTENT


def ends_early(connection: socket.socket, path: str) -> None:
    connection.sendall(head(1000) + b"half")


def another_file(connection: socket.socket, path: str) -> None:
    connection.sendall(head(5) + b"hello")


def not_there(connection: socket.socket, path: str) -> None:
    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def no_http(connection: socket.socket, path: str) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n")


def hangs_up(connection: socket.socket, path: str) -> None:
    pass


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (ends_early, "IncompleteRead"),
        (another_file, "is not the published file"),
        (not_there, "404"),
        (no_http, "220 mail"),
        (hangs_up, "closed connection"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_answer_that_is_not_the_logs_counts_as_none(published, tmp_path, serve, answer, wanted):
    serve(answer)
    status = third_party.obtain(None, tmp_path / "out")
    assert status["available"] is False
    assert wanted in status["reason"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["status.json"]


def test_a_server_that_never_ends_its_answer_does_not_hold_the_run_up(published, tmp_path, serve, monkeypatch):
    moments = itertools.count(step=HANGS_SECONDS / 10)
    monkeypatch.setattr(third_party, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    gone = threading.Event()

    def drips(connection: socket.socket, path: str) -> None:
        try:
            connection.sendall(head(10**9))
            while True:  # each wait is short: only the deadline of the whole ends this
                connection.sendall(b"drop")
                gone.wait(0.02)
        finally:
            gone.set()

    serve(drips)
    status = third_party.obtain(None, tmp_path / "out")
    assert status["available"] is False
    assert f"not fetched within {HANGS_SECONDS:g} s" in status["reason"]


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"available": "yes"}'])
def test_a_broken_status_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "status.json").write_text(content)
    with pytest.raises(InputError, match=r"status\.json: .*run `gradsync external` again"):
        third_party.status(tmp_path)


# Layer logs

ROW = "I0219 13:29:27.119763 66221 distributed.cpp:112] [{}]"
ITERATION = ["0, 30, 900.5, 11, 0", "1, 2, 900.5, 0, 0", "2, 500, 40, 12, 0", "3, 4, 40, 0, 0"]


def log(folder: Path, rows: list[str]) -> Path:
    path = folder / "layers.log"
    path.write_text("".join(ROW.format(row) + "\n" for row in rows))
    return path


def test_a_layer_log_becomes_a_workload(tmp_path):
    found = third_party.layer_log(log(tmp_path, ITERATION), forward_share=0.5)
    assert [(layer.name, layer.elements, layer.bytes) for layer in found.layers] == [
        ("layer1", 504, 2016),  # the last row first: backward order; weight and bias together
        ("layer0", 32, 128),
    ]
    assert [layer.backward_seconds for layer in found.layers] == pytest.approx([40e-6, 900.5e-6], rel=1e-12)
    assert found.backward_seconds == pytest.approx(940.5e-6, rel=1e-12)  # once a pair, not twice
    assert found.forward_seconds == pytest.approx(0.5 * 940.5e-6, rel=1e-12)
    assert "0.5 of the backward seconds" in found.provenance["assumed"]


def test_a_layer_log_holds_the_all_reduce_of_each_layer(tmp_path):
    waited = ["0, 30, 900.5, 11, 0", "1, 2, 900.5, 3, 0", "2, 500, 40, 12.5, 0", "3, 4, 40, 0, 0"]
    sizes, seconds = third_party.layer_allreduces(log(tmp_path, waited))
    np.testing.assert_array_equal(sizes, [4 * 32, 4 * 504])
    np.testing.assert_allclose(seconds, [14e-6, 12.5e-6], rtol=1e-12)  # those of weight and bias together


def test_the_last_iteration_counts(tmp_path):
    slow = [row.replace("900.5", "7.5e+03") for row in ITERATION]
    found = third_party.layer_log(log(tmp_path, [*slow, *ITERATION]), forward_share=0.0)
    assert found.backward_seconds == pytest.approx(940.5e-6, rel=1e-12)
    found = third_party.layer_log(log(tmp_path, [*ITERATION, *slow]), forward_share=0.0)
    assert found.backward_seconds == pytest.approx(7540e-6, rel=1e-12)


@pytest.mark.parametrize(
    "row",
    [
        "2, 500, 40, 12",
        "2, 500, fast, 12, 0",
        "2, 500, 4.0.0, 12, 0",
        "2, 500, -40, 12, 0",
        "2, 500, nan, 12, 0",
        "2, 0, 40, 12, 0",
        "2, -500, 40, 12, 0",
        "two, 500, 40, 12, 0",
    ],
)
def test_a_corrupt_row_is_named_by_file_and_line(tmp_path, row):
    path = log(tmp_path, [*ITERATION, *ITERATION[:2], row, ITERATION[3]])
    with pytest.raises(InputError, match=r"layers\.log, line 7: not a row"):
        third_party.layer_log(path, forward_share=0.0)


@pytest.mark.parametrize(
    "rows",
    [[], ITERATION[:3], [*ITERATION, *ITERATION[:1]], ITERATION[2:], [ITERATION[0], *ITERATION[2:]]],
    ids=["none", "bias missing", "last iteration cut", "begins late", "one missing"],
)
def test_an_incomplete_iteration_is_refused(tmp_path, rows):
    with pytest.raises(InputError, match=r"layers\.log: the last iteration has \d rows"):
        third_party.layer_log(log(tmp_path, rows), forward_share=0.0)


def test_a_log_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputError, match="can't be read"):
        third_party.layer_log(tmp_path / "nosuch.log", forward_share=0.0)
    (tmp_path / "binary.log").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="can't be read"):
        third_party.osu_log(tmp_path / "binary.log")


# All-reduce logs


def test_an_all_reduce_log_becomes_points(tmp_path):
    path = tmp_path / "osu.log"
    path.write_text("\n# OSU MPI Allreduce Latency Test\n# Size  Avg Latency(us)\n8,4      82.28\n8,1048576  9000\n")
    sizes, seconds = third_party.osu_log(path)
    np.testing.assert_array_equal(sizes, [4, 1048576])
    np.testing.assert_allclose(seconds, [82.28e-6, 9e-3], rtol=1e-12)


@pytest.mark.parametrize("row", ["8 4 82.28", "8,4", "8,4 fast", "8,4 8.2.8", "8,4 -8.2", "8,4 82.28 more"])
def test_a_corrupt_row_of_an_all_reduce_log_is_named(tmp_path, row):
    path = tmp_path / "osu.log"
    path.write_text(f"# header\n8,4 82.28\n{row}\n")
    with pytest.raises(InputError, match=r"osu\.log, line 3: not a row"):
        third_party.osu_log(path)


# The published files


@needs_published
def test_the_published_logs_are_those_of_the_fixed_commit(tmp_path):
    status = third_party.obtain(PUBLISHED, tmp_path)
    assert status["available"] is True
    assert json.loads((tmp_path / "status.json").read_text()) == status
    for name, digest in third_party.SHA256.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest


@needs_published
def test_the_published_layer_log_is_googlenet_on_a_k80(tmp_path):
    third_party.obtain(PUBLISHED, tmp_path)
    found = third_party.layer_log(tmp_path / "tmp8comm.log", forward_share=0.5)
    assert sum(layer.elements or 0 for layer in found.layers) == 13_379_136
    assert found.bytes == 4 * 13_379_136
    assert found.backward_seconds == pytest.approx(0.2053, abs=5e-5)
    assert found.layers[-1].elements == 9408 + 64  # 7 x 7 x 3 x 64 weights next to the input
    assert found.layers[0].elements == 1000 * 1024 + 1024  # the classifier's gradient is ready first; bias padded
    assert len(found.layers) == 64
    sizes, seconds = third_party.layer_allreduces(tmp_path / "tmp8comm.log")
    assert sizes.sum() == found.bytes
    assert seconds.sum() == pytest.approx(0.3107, abs=5e-5)


@needs_published
@pytest.mark.parametrize("name", ["allreduce2.log", "allreduce8.log"])
def test_the_published_all_reduce_logs_reach_from_4_bytes_to_a_mebibyte(tmp_path, name):
    third_party.obtain(PUBLISHED, tmp_path)
    sizes, seconds = third_party.osu_log(tmp_path / name)
    assert (sizes.min(), sizes.max()) == (4, 2**20)
    assert (seconds > 0).all()
    assert (np.diff(sizes) > 0).all()
