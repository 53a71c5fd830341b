"""Compressors: which elements of a gradient a sparse message has.

A compressor is one file of this folder with

    select(values, k, *, turn) -> positions    (k,) distinct, ascending int64 positions in `values`, a flat NumPy array

which is what the oracle computes with. Its namesake in `runtime/selection/` chooses the same positions with PyTorch.
What is random is drawn from `turn` and the length alone, so that both draw the same. Discovery finds the file.
"""

from __future__ import annotations

import importlib
from typing import Any

from gradsync.names import modules_in, refuse_unknown


def names() -> list[str]:
    """Names of all compressors, sorted."""
    return modules_in(__path__)


def get(name: str) -> Any:
    """The module of a compressor; raises InputError that lists the known ones."""
    refuse_unknown("compressor", name, names())
    return importlib.import_module(f"{__name__}.{name}")
