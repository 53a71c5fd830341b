"""What a build needs is checked before it starts: in a moment rather than after minutes."""

from __future__ import annotations

import os
import platform
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gradsync.errors import InputError
from gradsync.images import BASE, CPU, CUDA

OLDEST = (1, 2)  # the first Apptainer with arguments in definitions
# Free bytes that a build needs at its peak, where it unpacks and where the image goes: a fifth more than was measured.
UNPACKED_BYTES = {BASE: 0.35e9, CPU: 2.9e9, CUDA: 10.5e9}
IMAGE_BYTES = {BASE: 0.06e9, CPU: 0.68e9, CUDA: 3.8e9}


def refuse(kind: str, bootstrap: str, output: Path) -> None:
    """Raises InputError, with what to do, if an image of this kind can't be built on this machine."""
    if platform.system() != "Linux":
        raise InputError(f"image {kind}: images are built on Linux, this is {platform.system()}")
    apptainer(f"image {kind}")
    _needed(kind, "mksquashfs", "squashfs-tools")
    if kind == BASE and bootstrap == "debootstrap":
        _needed(kind, "debootstrap", "debootstrap", " (or `gradsync image base --bootstrap docker`)")
    _fakeroot(kind)
    room = {folder_of_builds(): UNPACKED_BYTES[kind], _existing(output.absolute().parent): IMAGE_BYTES[kind]}
    for folder, needed in room.items():
        _room(kind, folder, needed)


def apptainer(where: str) -> tuple[int, ...]:
    """The version of Apptainer; raises InputError if it is missing or too old."""
    wanted = ".".join(map(str, OLDEST))
    program = shutil.which("apptainer")
    if program is None:
        raise InputError(
            f"{where}: apptainer is not on PATH: install Apptainer {wanted} or newer, or load its module "
            "(on Debian, as root: .ci/install-apptainer)"
        )
    try:
        answer = subprocess.run([program, "version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{where}: {program} does not run: {error}") from None
    match = re.match(r"(\d+)\.(\d+)", answer.stdout)
    if match is None:
        raise InputError(f"{where}: {program} does not run: {(answer.stderr or answer.stdout).strip()[-300:]}")
    version = tuple(map(int, match.groups()))
    if version < OLDEST:
        raise InputError(f"{where}: {program} is version {answer.stdout.strip()}: {wanted} or newer is needed")
    return version


def folder_of_builds() -> Path:
    """The folder in which Apptainer unpacks: APPTAINER_TMPDIR, else the system's folder for temporary files."""
    folder = Path(os.environ.get("APPTAINER_TMPDIR") or tempfile.gettempdir())
    if not folder.is_dir():
        raise InputError(f"APPTAINER_TMPDIR {folder}: is not a folder: make it, or name another")
    return folder


def _needed(kind: str, program: str, package: str, otherwise: str = "") -> None:
    if shutil.which(program) is None and not Path("/usr/sbin", program).is_file():
        raise InputError(f"image {kind}: {program} is missing: install the package {package}{otherwise}")


def _fakeroot(kind: str) -> None:
    """Raises InputError if this user has no range of ids for fakeroot, which an administrator assigns."""
    user = pwd.getpwuid(os.getuid())
    for path in (Path("/etc/subuid"), Path("/etc/subgid")):
        lines = path.read_text().splitlines() if path.is_file() else []
        if not any(line.split(":")[0] in (user.pw_name, str(user.pw_uid)) for line in lines) and not _from_directory(
            user.pw_name
        ):
            raise InputError(
                f"image {kind}: {path} has no entry for {user.pw_name}, which building without privileges (fakeroot) "
                f"needs: ask an administrator for `apptainer config fakeroot --add {user.pw_name}`"
            )
    if shutil.which("newuidmap") is None:
        raise InputError(f"image {kind}: newuidmap is missing, which fakeroot needs: install the package uidmap")


def _from_directory(name: str) -> bool:
    """True if ids come from a directory service rather than from the files."""
    program = shutil.which("getsubids")
    if program is None:
        return False
    try:
        return subprocess.run([program, name], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _existing(folder: Path) -> Path:
    """`folder`, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _room(kind: str, folder: Path, needed: float) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"image {kind}: {folder} has {free / 1e9:.2f} GB free, the build needs {needed / 1e9:.2f} GB: make room or "
            "set APPTAINER_TMPDIR to a folder with more (--output for the image itself)"
        )
    if not os.access(folder, os.W_OK):
        raise InputError(f"image {kind}: {folder} can't be written: set APPTAINER_TMPDIR or --output to another folder")
