"""How figures look, and how they are saved."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from pandas import DataFrame

from gradsync.errors import InputError
from gradsync.files import packaged
from gradsync.files.writing import replacing

SHEET = packaged.file("reports/gradsync.mplstyle")
FORMATS = ("svg", "pdf", "png")
Drawn = tuple[Figure, DataFrame]  # a figure and the data that it shows


def use() -> None:
    """Use the project's style sheet, or matplotlib's own if an installed package has none."""
    plt.style.use(SHEET if SHEET.is_file() else "default")


def refuse(path: Path) -> None:
    """Raises InputError for a file whose ending names no format."""
    if path.suffix.lstrip(".") not in FORMATS:
        raise InputError(f"{path}: the ending must be one of {', '.join(FORMATS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the ending of `path` names; the same figure gives the same bytes.

    An earlier file stays until the new one is complete.
    """
    refuse(path)
    kind = path.suffix.lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=metadata, dpi=150)
