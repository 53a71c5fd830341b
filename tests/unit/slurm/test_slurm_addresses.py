"""The address that a local Slurm can be bound to, what its slurm.conf then says, and what its start prints of it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gradsync import cli
from gradsync.slurm import local, local_files, machine
from gradsync.slurm.local_files import Shape


def named(monkeypatch: pytest.MonkeyPatch, means: str) -> None:
    """Have this host's name resolve to that address, or to nothing."""

    def answer(*_: object, **__: object) -> list[object]:
        if not means:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (means, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    ("means", "bound"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.1.1", None),  # connections to it come from 127.0.0.1, where srun would not listen
        ("203.0.113.7", None),  # another machine's
        ("", None),
    ],
)
def test_slurm_is_bound_to_what_the_hosts_name_means_where_that_works(monkeypatch, means, bound):
    named(monkeypatch, means)
    assert machine.address() == bound


@pytest.mark.parametrize(
    ("address", "bound", "near"),
    [("127.0.0.1", "127.0.0.1", True), ("192.0.2.5", "192.0.2.5", False), (None, "127.0.0.1", False)],
)
def test_all_of_a_slurm_has_the_address_that_it_is_bound_to(address, bound, near):
    folder = local_files.at(Path("/slurm"))  # nothing is written; a path in pytest's folder may be too long
    text = local_files.slurm_conf(folder, Shape(nodes=2), [1, 2, 3], "me", address)
    assert text.count(f"NodeAddr={bound} ") == 2
    assert f"({bound})\n" in text
    assert ("CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n" in text) == (address is not None)
    assert machine.is_loopback(address) == near


@pytest.mark.parametrize(
    ("means", "note"),
    [("127.0.1.1", "reach its ports on all addresses"), ("127.0.0.1", "")],
)
def test_a_start_says_where_others_reach_it(monkeypatch, capsys, tmp_path, means, note):
    named(monkeypatch, means)
    monkeypatch.setattr(local, "start", lambda folder, shape: local.Running(folder / "slurm.conf", [], {}))
    assert cli.main(["slurm", "start", "--folder", str(tmp_path / "s")]) == 0
    output = capsys.readouterr()
    assert "Note" not in output.out  # which a shell evaluates
    assert ("Note" in output.err) == bool(note)
    assert note in output.err
    if note:
        assert f"`127.0.0.1 {socket.gethostname()}`" in output.err
