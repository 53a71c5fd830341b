"""MSTopK's kernels for GPUs, in Triton's interpreter: on a GPU `tests/cuda` runs them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import HANGS_SECONDS

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton comes with torch for CUDA alone")
def test_kernels_select_what_the_numpy_reading_does() -> None:
    program = [sys.executable, str(SUPPORT / "kernels_interpreted.py")]
    ended = subprocess.run(program, text=True, capture_output=True, timeout=HANGS_SECONDS)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n") == ["compared 54", ""]
