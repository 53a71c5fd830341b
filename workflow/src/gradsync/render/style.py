"""How figures look, and how they are saved."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from gradsync.errors import InputError

SHEET = Path(__file__).parents[4] / "reports" / "gradsync.mplstyle"
FORMATS = ("svg", "pdf", "png")


def use() -> None:
    """Take the project's style sheet (without one, from an installed package, matplotlib's own)."""
    plt.style.use(SHEET if SHEET.is_file() else "default")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the ending of `path` names; the same input gives the same bytes."""
    kind = path.suffix.lstrip(".")
    if kind not in FORMATS:
        raise InputError(f"{path}: the ending must be one of {', '.join(FORMATS)}")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=metadata, dpi=150)
    except OSError as error:
        raise InputError(f"{path}: can't be written: {error}") from None
