"""Ranks that are forks of one process are children of their launcher: found, watched and ended as such."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gradsync.cli import main
from gradsync.errors import RunError
from gradsync.lifetimes import lifeline
from gradsync.runtime import forking
from waiting import HANGS_SECONDS, until

RANK = """
import json, os, pathlib, sys, time
from gradsync.lifetimes import lifeline
from gradsync.runtime.forking import become_ranks

become_ranks()
listener = os.path.exists(f"/proc/self/fd/{sys.argv[2]}")
lifeline.follow(at_once=True)
rank, loaded = os.environ["RANK"], "torch" in sys.modules
listens = os.environ.get("GRADSYNC_LISTEN_FD")
say = {"loaded": loaded, "parent": os.getppid(), "pid": os.getpid(), "local": os.environ["LOCAL_RANK"]}
say |= {"listens": listens, "open": listener}
say["name"] = pathlib.Path("/proc/self/comm").read_text().strip()
file = pathlib.Path(sys.argv[1], rank)
file.with_suffix(".part").write_text(json.dumps(say))
file.with_suffix(".part").rename(file)
time.sleep(1000 * (int(rank) > 1))
sys.exit(7 * int(rank))
"""
LAUNCHER = """
import os, sys
from gradsync.lifetimes import lifeline
from gradsync.runtime import forking

ranks = forking.start(sys.argv[1:], lifeline.led(os.environ), [forking.Place(2)] * 3)
ranks[2].wait()
"""


def said(folder: Path, rank: int) -> dict:
    until((folder / str(rank)).exists)
    return json.loads((folder / str(rank)).read_text())


def test_ranks_are_watched_and_ended_as_children(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        descriptor = listener.fileno()
        command = [sys.executable, "-c", RANK, str(tmp_path), str(descriptor)]
        places = [forking.Place(local) for local in (0, 1, 0, 1)]
        ranks = forking.start(command, lifeline.led(os.environ), places, descriptor)
        assert [ranks[0].wait(HANGS_SECONDS), ranks[1].wait(HANGS_SECONDS)] == [0, 7]
        for number, rank in enumerate(ranks):
            here = said(tmp_path, number)
            assert here["pid"] == rank.pid
            assert (here["parent"], here["loaded"]) == (os.getpid(), True)
            assert (here["local"], here["name"]) == (str(number % 2), f"rank {number}")
            assert (here["listens"], here["open"]) == ((str(descriptor), True) if number == 0 else (None, False))
    assert [rank.poll() for rank in ranks] == [0, 7, None, None]
    with pytest.raises(subprocess.TimeoutExpired):
        ranks[2].wait(0.01)
    ranks[2].terminate()
    ranks[3].kill()
    assert [rank.wait(HANGS_SECONDS) for rank in ranks[2:]] == [-signal.SIGTERM, -signal.SIGKILL]
    ranks[2].kill()  # it has ended: nothing to do


def test_ranks_end_with_the_launcher_that_is_killed(tmp_path):
    command = [sys.executable, "-c", RANK, str(tmp_path), "0"]
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, *command])
    until(lambda: (tmp_path / "2").exists() or launcher.poll() is not None)
    pid = said(tmp_path, 2)["pid"]
    assert lifeline.started(pid) is not None
    launcher.kill()
    launcher.wait()
    until(lambda: lifeline.started(pid) is None)


def test_a_program_that_fails_before_there_are_ranks_is_an_error(capfd):
    with pytest.raises(RunError, match="the process that becomes 2 ranks ended with status 3"):
        forking.start([sys.executable, "-c", "raise SystemExit(3)"], os.environ, [forking.Place(0), forking.Place(1)])


THIRD_FORK = """
import os, signal, time
from gradsync.runtime import forking

forks, fork = [], os.fork
def third():
    if len(forks) == 2:
        {happens}
    forks.append(fork())
    return forks[-1]
os.fork = third
forking.become_ranks()
open("went on", "x")
"""
THREE = [forking.Place(local) for local in range(3)]


def children() -> set[int]:
    return {each.pid for each in psutil.Process().children()}


def test_a_rank_that_cannot_be_forked_is_named_and_the_others_do_not_go_on(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before, program = children(), THIRD_FORK.format(happens="raise OSError(11, 'Resource temporarily unavailable')")
    with pytest.raises(RunError, match="the process that becomes 3 ranks ended with status 1"):
        forking.start([sys.executable, "-c", program], os.environ, THREE)
    assert "gradsync: rank 2 of 3 can't be started: Resource temporarily" in capfd.readouterr().err
    assert (children(), [*tmp_path.iterdir()]) == (before, [])


def test_ranks_do_not_go_on_where_the_process_that_becomes_them_is_killed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, program = children(), THIRD_FORK.format(happens="os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(RunError, match=r"the process that becomes 3 ranks was killed by SIGKILL \(if nobody"):
        forking.start([sys.executable, "-c", program], os.environ, THREE)
    assert (children(), [*tmp_path.iterdir()]) == (before, [])


def test_ranks_do_not_go_on_where_the_launcher_is_asked_to_end_meanwhile(tmp_path, monkeypatch):
    def asked(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    monkeypatch.chdir(tmp_path)
    before, program = children(), THIRD_FORK.format(happens="os.kill(os.getppid(), signal.SIGUSR1); time.sleep(1000)")
    handler = signal.signal(signal.SIGUSR1, asked)
    try:
        with pytest.raises(SystemExit):
            forking.start([sys.executable, "-c", program], os.environ, THREE)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert (children(), [*tmp_path.iterdir()]) == (before, [])


def test_a_rank_of_which_the_launcher_has_just_heard_when_it_is_asked_to_end_does_not_go_on(tmp_path, monkeypatch):
    heard: list[int] = []

    class AskedMeanwhile(forking.Rank):
        def __init__(self, pid: int) -> None:
            heard.append(pid)
            if len(heard) == 2:
                raise SystemExit(128 + signal.SIGTERM)
            super().__init__(pid)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forking, "Rank", AskedMeanwhile)
    before, program = children(), THIRD_FORK.format(happens="pass")
    with pytest.raises(SystemExit):
        forking.start([sys.executable, "-c", program], os.environ, THREE)
    assert (children(), [*tmp_path.iterdir()]) == (before, [])


@pytest.mark.parametrize("words", forking.OF_COMMANDS)
def test_what_is_loaded_is_for_commands_that_there_are(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("options", "loaded"),
    [
        (["--model=lenet5"], {"gradsync.runtime.train"}),
        (["--model=lenet5", "--peer=ddp"], {"gradsync.runtime.train", "torch._dynamo"}),
        (["--model=resnet18"], {"gradsync.runtime.train", "torchvision", "torch._dynamo"}),
        (["--model=own.py:make"], {"gradsync.runtime.train"}),
    ],
    ids=["plans", "peer", "torchvision", "own"],
)
def test_only_what_the_ranks_would_load_is_loaded(options, loaded):
    """What takes a second or more; LeNet-5's forward pass is traced, which torch would load its compiler for."""
    program = (
        "import sys; from gradsync.runtime import forking; forking._load(['train', *sys.argv[1:]])\n"
        "from gradsync.runtime import models; from gradsync.runtime.forward_order import forward_order\n"
        "forward_order(models.build('lenet5', 0), lambda model: model(models.blank('lenet5')))\n"
        "print(*{'gradsync.runtime.train', 'torchvision', 'torch._dynamo', 'scipy.stats'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == loaded


def test_a_rank_that_cannot_run_on_its_host_says_so(capfd):
    program = "from gradsync.runtime.forking import become_ranks; become_ranks()"
    places = [forking.Place(0, "no-such-namespace"), forking.Place(0)]
    ranks = forking.start([sys.executable, "-c", program], os.environ, places)
    assert [rank.wait(HANGS_SECONDS) for rank in ranks] == [1, 0]
    assert "gradsync: rank 0 can't run on its host: [Errno 2]" in capfd.readouterr().err
    ranks = forking.start([sys.executable, "-c", program], os.environ, places[:1] * 2)
    assert [rank.wait(HANGS_SECONDS) for rank in ranks] == [1, 1]
