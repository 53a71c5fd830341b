"""A benchmark runs gradsync as users do."""

from __future__ import annotations

import os
import subprocess
import sys

from gradsync.errors import RunError
from gradsync.lifetimes import lifeline


def run(*words: str) -> None:
    """`gradsync WORDS`; what it prints to stderr is shown. Raises RunError if it fails."""
    command = [sys.executable, "-m", "gradsync", *words]
    if subprocess.run(command, stdout=subprocess.DEVNULL, env=lifeline.led(os.environ)).returncode:
        raise RunError(f"benchmark: this failed: {' '.join(command)}")
