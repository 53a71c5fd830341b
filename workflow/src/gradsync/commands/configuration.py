"""Which configuration a command works on, and where its results lie."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def configured(options: argparse.Namespace) -> tuple[Any, Path]:
    """The configuration that a command names, and the folder of its results."""
    from gradsync import settings

    loaded = settings.load(options.config)
    return loaded, options.results or Path("results") / loaded.name
