"""A project whose base image is a shell and little else: built for real, by Apptainer, in under a second."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from waiting import HANGS_SECONDS

ROOT = Path(__file__).parents[2]
PROGRAMS = ("sh", "cat", "ls")
TINY = """\
Bootstrap: scratch

%arguments
    from=none
    suite=none

%setup
    for folder in mnt tmp proc sys dev etc root var/tmp; do mkdir -p "$APPTAINER_ROOTFS/$folder"; done

%files
{files}

%post
    {post}

%test
    {test}

%labels
    gradsync.base.version {{{{ version }}}}
    gradsync.base.definitions {{{{ definitions }}}}
    gradsync.base.from {{{{ bootstrap }}}} {{{{ mirror }}}} {{{{ suite }}}} {{{{ from }}}}
"""


def needed_files() -> list[Path]:
    """Programs of this host and the libraries that they load."""
    files = [Path(shutil.which(name) or name) for name in PROGRAMS]
    for program in list(files):
        told = subprocess.run(
            ["ldd", program], capture_output=True, text=True, check=True, timeout=HANGS_SECONDS
        ).stdout
        files += [Path(path) for path in re.findall(r"(/\S+) \(0x", told)]
    return list(dict.fromkeys(files))


class TinyProject:
    """A folder with the definitions of a tiny base image, in which `gradsync image` runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder / "containers" / "base.sif"
        (folder / "containers").mkdir()
        self.define()

    def define(self, post: str = "true", test: str = "true") -> None:
        # each under /bin: the shell's place on this host is no concern of the image
        files = (f"    {path} {f'/bin/{path.name}' if path.name in PROGRAMS else path}" for path in needed_files())
        text = TINY.format(files="\n".join(files), post=post, test=test)
        (self.folder / "containers" / "base.def").write_text(text)

    def build(
        self, *arguments: str, wrapped: str = "", kind: str = "base", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `gradsync image`; `wrapped` are shell commands that come before it, in a mount namespace of their own."""
        command = [sys.executable, "-m", "gradsync", "image", kind, *arguments]
        if wrapped:
            command = ["unshare", "--mount", "sh", "-ec", f'{wrapped}; exec "$@"', "sh", *command]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=HANGS_SECONDS,
        )

    def inside(self, *command: str) -> str:
        """What a command prints in the image."""
        ended = in_image(self.image, *command)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


def in_image(image: Path, *command: str, bind: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in an image. Root of a restricted machine has privileges that it can't give away: it gives none."""
    mounted = [f"--bind={bind}"] if bind else []
    return subprocess.run(
        ["apptainer", "exec", "--no-privs", *mounted, str(image), *command],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
    )
