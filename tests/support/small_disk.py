"""A file system with little room, if this process may mount one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: int, *options: str) -> Iterator[Path]:
    """`folder` with room for `size` bytes; the test is skipped if it can't be had."""
    if shutil.which("mount") is None:
        pytest.skip("no small file system can be mounted here: there is no command mount")
    folder.mkdir(parents=True, exist_ok=True)
    mount_options = ",".join([f"size={size}", *options])
    ended = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", mount_options, "none", str(folder)], capture_output=True, text=True
    )
    if ended.returncode:
        pytest.skip(f"no small file system can be mounted here: {ended.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leaving: int = 0) -> Path:
    """Take all room of a file system but for some bytes."""
    file = folder / "filling"
    with file.open("wb", buffering=0) as filling:
        filling.write(bytes(max(0, shutil.disk_usage(folder).free - leaving)))
    return file


def small_disks() -> bool:
    """Whether this process may mount one."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=4096", "none", folder]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            return False
        subprocess.run(["umount", folder], check=True)
    return True
