"""Testbeds of an ordinary user, in a user namespace: what he gets, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradsync
from gradsync.cli import main
from testbeds import netns, real
from waiting import HANGS_SECONDS, until

USER = 61234  # nobody's
GRADSYNC = [sys.executable, "-m", "gradsync"]


@pytest.fixture(scope="module")
def user() -> Iterator[list[str]]:
    """Begins a command that an ordinary user runs; skips where the kernel refuses such users a namespace."""
    # he may read what is run here, wherever it lies; seen by nobody else
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(gradsync.__file__).parent.parent}
    folders = {folder: closed for folder in needed if (closed := closed_part(folder))}
    with tempfile.TemporaryDirectory() as aside:
        script = ["set -e"]
        for number, folder in enumerate(folders):
            script.append(f"mkdir -p {aside}/{number}; mount --bind {folder} {aside}/{number}")
        script += [f"mount -t tmpfs -o mode=755 none {closed}" for closed in sorted(set(folders.values()))]
        for number, folder in enumerate(folders):
            script.append(f"mkdir -p {folder}; mount --bind {aside}/{number} {folder}")
        script.append(f'exec setpriv --reuid {USER} --regid {USER} --clear-groups "$@"')
        way = ["unshare", "--mount", "sh", "-c", "\n".join(script), "sh"]
        tried = subprocess.run([*way, "unshare", "--user", "true"], capture_output=True, text=True)
        if "unshare failed" in tried.stderr:
            pytest.skip(f"ordinary users get no namespace here: {tried.stderr.strip()}")
        assert tried.returncode == 0, tried.stderr
        yield way


def closed_part(folder: Path) -> Path | None:
    """The first part of a path that others can't enter."""
    return next((part for part in [*reversed(folder.parents), folder] if not part.stat().st_mode & 0o001), None)


@pytest.fixture
def user_folder() -> Iterator[Path]:
    """A folder of that user."""
    folder = Path(tempfile.mkdtemp(prefix="gradsync-test-"))
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


def processes() -> list[str]:
    """What runs for that user, or of which only the end hasn't been noticed."""
    commands = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if each.stat().st_uid == USER:
                commands.append((each / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [command for command in commands if command]


@real
def test_ranks_of_an_ordinary_user_run_in_hosts(user, user_folder):
    arguments = [
        "measure",
        "allreduce",
        "--ranks",
        "2",
        "--testbed",
        "switch",
        "--smallest",
        "1000",
        "--largest",
        "4000",
    ]
    ended = subprocess.run(
        [*user, *GRADSYNC, *arguments, "--json", "--output", "points.csv"],
        cwd=user_folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert {point["ranks"] for point in json.loads(ended.stdout)["points"]} == {2}
    assert ended.stderr.startswith("measure allreduce: 2 ranks")
    assert (user_folder / "points.csv").stat().st_uid == USER
    assert not processes()


@real
def test_the_check_measures_links_of_an_ordinary_user(user, user_folder):
    arguments = ["testbed", "check", "--json", "--rate", "8e8", "--output", "found.json"]
    ended = subprocess.run([*user, *GRADSYNC, *arguments], cwd=user_folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert (answer["possible"], answer["how"]) == (True, "user namespace")
    assert len(answer["links"]) == 2
    assert json.loads((user_folder / "found.json").read_text()) == answer
    assert (user_folder / "found.json").stat().st_uid == USER


@real
def test_input_is_refused_for_an_ordinary_user_as_for_root(user, user_folder):
    arguments = ["testbed", "check", "--rate", "0"]
    ended = subprocess.run([*user, *GRADSYNC, *arguments], cwd=user_folder, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == ["gradsync: rate 0 bit/s: a link takes 100000 to 1e+11"]


@real
@pytest.mark.parametrize(
    ("sent", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_what_is_ended_leaves_no_process(user, user_folder, sent, status):
    arguments = ["testbed", "check", "--rate", "1e5"]  # would take an hour
    # tests that run in a shell's background have been told to ignore Ctrl-C, which is for the command to obey
    command = ["env", "--default-signal=INT", *user, *GRADSYNC, *arguments]
    running = subprocess.Popen(command, cwd=user_folder, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: any("probe send" in command for command in processes()))
        os.kill(running.pid, sent)
        _, err = running.communicate(timeout=HANGS_SECONDS)
    finally:
        running.kill()
    assert running.returncode == status
    assert "Traceback" not in err
    until(lambda: not processes(), processes)


@real
def test_where_user_namespaces_are_refused_too_the_reason_is_told():
    # root of a user namespace alone, who may have none beneath it
    refused = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    way = ["unshare", "--user", "--map-root-user", "sh", "-c", refused, "sh"]
    ended = subprocess.run([*way, *GRADSYNC, "testbed", "check", "--json"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert not answer["possible"]
    assert "not root of the network (" in answer["reason"]
    assert "nor in a user namespace (unshare: unshare failed: No space left on device)" in answer["reason"]
    assert "run it as root, or let users make user namespaces" in answer["reason"]


@real
def test_what_only_root_can_remove_is_told(user, user_folder, capsys):
    left = "gradsync-999999999-1-0-switches"  # of a process that there can't be
    subprocess.run(["ip", "netns", "add", left], check=True)
    ended = subprocess.run([*user, *GRADSYNC, "testbed", "clean"], cwd=user_folder, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"{left} first: run it as who made them, or root" in ended.stderr
    assert main(["testbed", "clean", "--json"]) == 0
    assert left in json.loads(capsys.readouterr().out)["removed"]
    assert left not in netns()
