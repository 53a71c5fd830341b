"""Files that come with the package: those of a checkout, or copies beside the installed modules (`setup.py`)."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
COPIES = PACKAGE / "packaged"
ROOT = PACKAGE.parents[2]  # of a checkout


def file(name: str) -> Path:
    """`config/schemes.yaml`, say, wherever gradsync runs from."""
    return COPIES / name if COPIES.is_dir() else ROOT / name
