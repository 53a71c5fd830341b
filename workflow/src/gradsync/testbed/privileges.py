"""Networks for an ordinary user: the command runs again in a user namespace, where he is root of networks of his own.

The namespace has a view of the file system in which `ip` may keep names, and a view of processes that ends as a whole:
when the command or the process that started it has ended, nothing that it has started is left. Files that are written
stay the user's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.lifetimes import lifeline
from gradsync.testbed.namespaces import asked, new_name, refuse_commands, remove

ENTER = (
    *("setpriv", "--pdeathsig", "KILL"),  # the kernel kills what comes next when this process is gone
    *("unshare", "--user", "--map-root-user", "--net", "--mount-proc", "--pid", "--fork", "--kill-child"),
)
# what is in /run stays visible, if that is possible
MOUNT = 'mount -t tmpfs none "$([ -d /run/netns ] && echo /run/netns || echo /run)" && exec "$@"'
INSIDE = (*ENTER, "sh", "-c", MOUNT, "sh")
LEAVE_SECONDS = 30.0  # that ranks and a testbed may take to end once they are interrupted
POLL_SECONDS = 0.02


def enter() -> None:
    """Return if this process may make networks; else run its command line again in a user namespace, and end with it.

    It ends by SystemExit with the exit status of the command; output is passed through, Ctrl-C and SIGTERM end it.
    Raises InputError if networks can be made in neither way.
    """
    refuse_commands()
    if reason := _refusal():
        _refuse_inside(reason)
        raise SystemExit(_inside([sys.executable, "-m", "gradsync", *sys.argv[1:]]))


def impossible() -> str:
    """Why networks can be made neither by this process nor after `enter`; empty if they can."""
    try:
        refuse_commands()
        if reason := _refusal():
            _refuse_inside(reason)
    except InputError as error:
        return str(error)
    return ""


def who() -> str:
    """What this process is root of: the machine, or a user namespace alone."""
    return "root" if Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"] else "user namespace"


def _refusal(way: Sequence[str] = ()) -> str:
    """Why a network namespace can't be made by way of a command (`way`); empty if it can."""
    name = f"{new_name()}-switches"
    _, complaint = asked([*way, "ip", "netns", "add", name])
    if not complaint and not way:  # otherwise it is gone with its maker
        remove([name])
    return complaint


def _refuse_inside(reason: str) -> None:
    """Raises InputError unless a user namespace can make networks, which this process can't for the given reason."""
    missing = [command for command in (ENTER[0], "unshare") if not shutil.which(command)]
    inside = f"no command {missing[0]!r}, install util-linux" if missing else _refusal(INSIDE)
    if inside:
        raise InputError(
            f"testbed: not root of the network ({reason}), nor in a user namespace ({inside}): run it as root, or let "
            "users make user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns)"
        )


def _inside(command: Sequence[str]) -> int:
    """Run a command in a user namespace; gives its exit status. If interrupted or terminated, all of it is ended."""
    signals: list[int] = []
    before: dict[int, Any] = {
        number: signal.signal(number, lambda signal_number, _: signals.append(signal_number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    # it gets a group of its own: a terminal interrupts this process, which then interrupts the other once
    killed_too = lifeline.killed_with_parent(signal.SIGKILL)  # until `setpriv` has seen to it
    child = subprocess.Popen([*INSIDE, *command], process_group=0, preexec_fn=killed_too)
    deadline = 0.0
    try:
        while child.poll() is None:
            received = [number for number in signals if before[number] != signal.SIG_IGN]
            if received and not deadline:
                deadline = time.monotonic() + LEAVE_SECONDS
                _interrupt(child)
            elif len(received) > 1 or (received and time.monotonic() > deadline):
                child.kill()
            time.sleep(POLL_SECONDS)
    finally:
        child.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    if deadline:
        return 128 + received[0]
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Interrupt what `unshare` has started, so that it can clean up; if it has started nothing yet, end it."""
    try:
        (started,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(started), signal.SIGINT)
    except (OSError, ValueError):
        child.kill()
