"""A result never replaces anything but an earlier result."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from gradsync.errors import InputError
from gradsync.files.writing import replacing, write_whole


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def link_out(path: Path) -> None:
    (path.parent.parent / "precious").write_text("kept")
    path.symlink_to(path.parent.parent / "precious")


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("make", [Path.mkdir, fifo, unix_socket, link_out, link_to_device])
def test_a_result_replaces_nothing_but_a_file(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "b.json"
    make(path)
    before = os.lstat(path)
    with pytest.raises(InputError, match=r"b\.json: can't be written"):
        write_whole(path, "new")
    assert stat.S_IFMT(os.lstat(path).st_mode) == stat.S_IFMT(before.st_mode)
    assert os.listdir(path.parent) == ["b.json"]
    if make is link_out:
        assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_stays_one(tmp_path):
    path = tmp_path / "full"
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    with pytest.raises(InputError, match="it is a device"):
        write_whole(path, "new")
    assert stat.S_ISCHR(os.lstat(path).st_mode)


def test_a_temporary_file_has_a_name_that_cannot_be_prepared(tmp_path):
    """A file that exists is never opened: the temporary file is new, and empty."""
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "b.json") as temporary:
            assert temporary.parent == tmp_path
            assert temporary.stat().st_size == 0
            names.add(temporary.name)
    assert len(names) == 3
    assert os.listdir(tmp_path) == ["b.json"]


def test_what_comes_there_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "b.json"

    def written() -> None:
        with replacing(path) as temporary:
            temporary.write_text("new")
            path.mkdir()

    with pytest.raises(InputError, match="it is a folder"):
        written()
    assert path.is_dir()


@pytest.mark.parametrize("name", ["", ".", "x" * 300, "a\0b", "\ud800"])
def test_what_is_no_path_is_refused(name):
    with pytest.raises(InputError):
        write_whole(Path(name), "new")


def test_a_new_file_has_the_rights_that_any_has_and_an_earlier_one_keeps_its_own(tmp_path):
    (tmp_path / "plain").touch()
    write_whole(tmp_path / "new", "new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    write_whole(tmp_path / "new", "newer")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
