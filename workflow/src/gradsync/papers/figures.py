"""Figures of the papers, drawn from tables and traces; each with its data as CSV.

The `drawing` of a paper has `FIGURES`: the function that draws each, from settings and results. A figure whose data is
missing says what is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib import pyplot as plt

from gradsync import papers
from gradsync.configuration.settings import Settings
from gradsync.drawing import style
from gradsync.drawing.style import Drawn
from gradsync.errors import InputError
from gradsync.files.results import write_whole
from gradsync.names import near


def of(paper: str) -> dict[str, Callable[[Settings, Path], Drawn]]:
    """The figures of a paper by name; raises InputError that lists the known papers."""
    papers.refuse_unknown(paper)
    drawn: dict[str, Callable[[Settings, Path], Drawn]] = importlib.import_module(
        f"gradsync.papers.{paper}.drawing"
    ).FIGURES
    return drawn


def refuse_unknown(paper: str, names: Iterable[str]) -> None:
    """Raises InputError for a paper that does not exist, and for the first figure that it does not have."""
    known = of(paper)
    for name in names:
        if name not in known:
            raise InputError(f"paper {paper!r} has no figure {name!r}; {near(name, known)}it has: {', '.join(known)}")


def write(paper: str, name: str, settings: Settings, results: Path) -> list[str]:
    """`figures/<paper>/<name>.{svg,pdf,png,csv}` below `results`; returns their paths."""
    refuse_unknown(paper, [name])
    style.use()
    figure, data = of(paper)[name](settings, results)
    folder = results / "figures" / paper
    for kind in style.FORMATS:
        style.save(figure, folder / f"{name}.{kind}")
    plt.close(figure)
    write_whole(folder / f"{name}.csv", data.to_csv(index=False))
    return [str(folder / f"{name}.{kind}") for kind in (*style.FORMATS, "csv")]
