"""Testbeds leave nothing behind: not a process, not a namespace, whoever ends them and however."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.errors import RunError
from gradsync.lifetimes import lifeline
from gradsync.testbed import namespaces
from testbeds import FOLDERS, RATE, made_of, netns, real, wired
from waiting import HANGS_SECONDS, until


@real
def test_five_testbeds_in_a_row_leave_the_machine_as_it_was():
    def state():
        said = [subprocess.check_output(["ip", *what.split()]) for what in ("-o link", "-o addr", "route")]
        return [re.sub(rb"_lft \S+", b"", each) for each in said]  # lifetimes of addresses run out

    program = (
        "import subprocess, sys; sys.path += sys.argv[1:]\n"
        "from testbeds import RATE, made_of, wired\n"
        "for _ in range(5):\n"
        "    with made_of(wired('bcube:2,2'), RATE) as made:\n"
        "        [subprocess.Popen(made.on(host, ['sleep', '1000'])) for host in range(4)]\n"
    )
    before = state()
    running = subprocess.Popen([sys.executable, "-c", program, *FOLDERS], start_new_session=True)
    assert running.wait(HANGS_SECONDS) == 0
    assert state() == before
    assert not [name for name in netns() if name.startswith(f"gradsync-{running.pid}-")]
    until(lambda: gone(running.pid))


def gone(session: int) -> bool:
    """Whether nobody lives of a session; when its dead are buried is up to init."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = file.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it ended meanwhile
            continue
        if int(its_session) == session and state != "Z":
            return False
    return True


@real
def test_more_hosts_than_namespaces_are_allowed_are_refused_with_the_limit():
    # in a user namespace, whose limits are ours to set; the first of them is the one that it has already
    limited = 'mount -t tmpfs none /run && echo 4 >/proc/sys/user/max_net_namespaces && exec "$@"'
    way = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", limited, "sh"]
    ended = subprocess.run(
        [*way, sys.executable, "-m", "gradsync", "testbed", "check", "--json"], capture_output=True, text=True
    )
    answer = json.loads(ended.stdout)
    assert not answer["possible"]
    assert "4 hosts and their switches are 5 network namespaces, this machine allows 4" in answer["reason"]


@real
def test_a_process_that_enters_while_its_testbed_is_removed_is_ended(monkeypatch):
    started = []
    call = namespaces._ip

    def entered_meanwhile(*arguments: str, text: str = "") -> str:
        if arguments[:2] == ("netns", "del") and not started:
            started.append(subprocess.Popen(network.on(0, ["sleep", "1000"])))
            until(lambda: Path(f"/proc/{started[0].pid}/comm").read_text() == "sleep\n")
        return call(*arguments, text=text)

    monkeypatch.setattr(namespaces, "_ip", entered_meanwhile)
    with made_of(wired("switch:2"), RATE) as network:
        pass
    assert started[0].wait(HANGS_SECONDS) == -signal.SIGKILL


@real
def test_a_removal_is_not_broken_off_by_a_second_signal(monkeypatch):
    """Ctrl-C ends ranks and testbed, and a launcher that has waited then terminates the process that does so."""
    before, call, removed = netns(), namespaces._ip, []

    def terminated(*arguments: str, text: str = "") -> str:
        if arguments[:2] == ("netns", "del"):
            removed.append(arguments[2])
            os.kill(os.getpid(), signal.SIGTERM)
        return call(*arguments, text=text)

    monkeypatch.setattr(namespaces, "_ip", terminated)
    with pytest.raises(SystemExit) as ended, made_of(wired("switch:2"), RATE):
        pass
    assert ended.value.code == 128 + signal.SIGTERM
    assert len(removed) == 3
    assert netns() == before


@real
def test_a_process_that_has_found_a_namespace_before_it_was_removed_does_not_run_there(monkeypatch):
    with made_of(wired("switch:2"), RATE) as network:
        name = network.namespace(0)
        namespace = (namespaces.MADE / name).open()
        command = network.on(0, ["sleep", "1000"])
    assert command[:4] == ["ip", "netns", "exec", name]
    with namespace:
        inside = ["nsenter", f"--net=/proc/self/fd/{namespace.fileno()}", *command[4:]]
        assert subprocess.run(inside, pass_fds=[namespace.fileno()], timeout=HANGS_SECONDS).returncode == 1
        monkeypatch.setattr(namespaces, "MADE", Path("/nowhere"))
        monkeypatch.setattr(Path, "open", lambda path: os.fdopen(os.dup(namespace.fileno())))
        with ThreadPoolExecutor(1) as thread, pytest.raises(FileNotFoundError, match=name):
            thread.submit(namespaces.enter, name).result()


def test_a_command_that_does_not_answer_is_an_error(monkeypatch):
    monkeypatch.setattr(namespaces, "ANSWER_SECONDS", 0.1)
    with pytest.raises(RunError, match=r"testbed: sleep 1000: no answer within 0\.1 s"):
        namespaces._call("sleep", "1000")


@real
def test_nothing_is_left_where_a_testbed_fails():
    before = netns()
    with pytest.raises(RunError, match="testbed: ip"), made_of([*wired("switch:2"), *wired("switch:2")], RATE):
        pass  # the same interface twice
    started = []

    def fails(network):
        started.append(subprocess.Popen(network.on(0, ["sleep", "1000"])))
        until(lambda: Path(f"/proc/{started[0].pid}/comm").read_text() == "sleep\n")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), made_of(wired("switch:2"), RATE) as network:
        fails(network)
    assert started[0].wait(HANGS_SECONDS) == -signal.SIGKILL
    assert netns() == before


@real
def test_what_a_killed_run_has_left_is_removed_and_what_lives_is_kept(capsys):
    before = netns()
    program = (
        "import sys; from gradsync import topologies; from gradsync.testbed.wiring import cables\n"
        "from gradsync.testbed.namespaces import testbed\n"
        "with testbed(cables(topologies.parse('switch:2')), 4e8): print('there', flush=True); sys.stdin.read()"
    )
    running = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"there\n"
    left = netns() - before
    assert len(left) == 3
    assert not left & set(namespaces.left_behind())  # its process lives
    running.kill()
    running.communicate()
    capsys.readouterr()
    with made_of(wired("switch:2"), RATE) as network, made_of(wired("switch:2"), RATE):
        message = capsys.readouterr().err
        assert message.count(f"gradsync-{running.pid}-") == message.count("gradsync testbed clean removes them") == 1
        assert main(["testbed", "clean", "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["removed"]) >= left
        assert network.namespace(0) in netns()
    assert netns() == before
    assert main(["testbed", "clean", "--json"]) == 0  # again: nothing to do


@real
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_testbed_whose_launcher_is_killed_goes_with_it_or_is_cleaned(capsys, stopped):
    """Its maker ends by itself, and removes it; one that can't is ended by who cleans."""
    launched = (
        "import os, subprocess, sys; from gradsync.lifetimes import lifeline\n"
        "subprocess.run([sys.executable, '-m', 'gradsync', 'testbed', 'check', '--rate', '1e5'],"
        " env=lifeline.led(os.environ), preexec_fn=lambda: print(os.getpid(), flush=True))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", launched], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    maker = int(launcher.stdout.readline())

    def namespaces_of_maker() -> set[str]:
        listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return {line.split()[0] for line in listing.splitlines() if line.startswith(f"gradsync-{maker}-")}

    until(lambda: len(namespaces_of_maker()) > 4)
    names = namespaces_of_maker()
    assert not names & set(namespaces.left_behind())
    if stopped:
        os.kill(maker, signal.SIGSTOP)
    launcher.kill()
    launcher.wait(HANGS_SECONDS)
    if stopped:
        assert main(["testbed", "clean", "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["removed"]) >= names
    until(lambda: lifeline.started(maker) is None)
    launcher.stdout.close()
    until(lambda: not namespaces_of_maker())
