"""Networks for an ordinary user: the same command again, in a user namespace where he is root of networks of his own.

In there is a view of the file system in which `ip` may keep names, and a view of processes that ends as a whole: when
the command has ended, or whoever started it, nothing that it has started is left. Files that are written stay the
user's.
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
from gradsync.testbed.namespaces import new_name, refuse_commands, remove

ENTER = (
    *("setpriv", "--pdeathsig", "KILL"),  # of what comes next, when this process is gone
    *("unshare", "--user", "--map-root-user", "--net", "--mount-proc", "--pid", "--fork", "--kill-child"),
)
# what is in /run stays in sight, where that is possible
MOUNT = 'mount -t tmpfs none "$([ -d /run/netns ] && echo /run/netns || echo /run)" && exec "$@"'
INSIDE = (*ENTER, "sh", "-c", MOUNT, "sh")
LEAVE_SECONDS = 30.0  # of what was interrupted: the time that ranks and a testbed take to end
POLL_SECONDS = 0.02


def enter() -> None:
    """Come back where this process may make networks; else run its command line again where it may, and end with that.

    That is SystemExit with the exit status of the command; output is passed through, Ctrl-C and SIGTERM end it.
    Raises InputError if neither can be.
    """
    refuse_commands()
    if reason := _refused():
        _refuse_inside(reason)
        raise SystemExit(_inside([sys.executable, "-m", "gradsync", *sys.argv[1:]]))


def impossible() -> str:
    """Why networks can be made neither here nor after `enter`; empty if they can."""
    try:
        refuse_commands()
        if reason := _refused():
            _refuse_inside(reason)
    except InputError as error:
        return str(error)
    return ""


def who() -> str:
    """Root of the machine, or of a user namespace alone."""
    return "root" if Path("/proc/self/uid_map").read_text().split()[:2] == ["0", "0"] else "user namespace"


def _refused(way: Sequence[str] = ()) -> str:
    """What is said to a namespace made by way of a command; empty if it could be made."""
    tried = f"{new_name()}-switches"
    ended = subprocess.run([*way, "ip", "netns", "add", tried], capture_output=True, text=True, check=False, timeout=60)
    if ended.returncode:
        return next(iter(ended.stderr.strip().splitlines()), f"exit status {ended.returncode}")
    if not way:  # elsewhere it is gone with its maker
        remove([tried])
    return ""


def _refuse_inside(reason: str) -> None:
    """Raises InputError unless a user namespace gives what was refused here for a reason."""
    missing = [command for command in (ENTER[0], "unshare") if not shutil.which(command)]
    inside = f"no command {missing[0]!r}, install util-linux" if missing else _refused(INSIDE)
    if inside:
        raise InputError(
            f"testbed: not root of the network ({reason}), nor in a user namespace ({inside}): run it as root, or let "
            "users make user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns)"
        )


def _inside(command: Sequence[str]) -> int:
    """The exit status of a command that runs there; interrupted or terminated, it is ended with all that it started."""
    told: list[int] = []
    before: dict[int, Any] = {
        number: signal.signal(number, lambda got, _: told.append(got)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    # a group of its own: what a terminal interrupts is this process, which then tells the other, once
    child = subprocess.Popen([*INSIDE, *command], process_group=0)
    deadline = 0.0
    try:
        while child.poll() is None:
            heard = [number for number in told if before[number] != signal.SIG_IGN]
            if heard and not deadline:
                deadline = time.monotonic() + LEAVE_SECONDS
                _interrupt(child)
            elif len(heard) > 1 or (heard and time.monotonic() > deadline):
                child.kill()
            time.sleep(POLL_SECONDS)
    finally:
        child.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    if deadline:
        return 128 + heard[0]
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Interrupt what `unshare` has started, so that it can clean up; where that isn't there yet, end it all."""
    try:
        (started,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(started), signal.SIGINT)
    except (OSError, ValueError):
        child.kill()
