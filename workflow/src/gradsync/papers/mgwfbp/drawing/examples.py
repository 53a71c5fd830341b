"""Fig. 1 to 4 of the MG-WFBP paper and the counterexample to its Theorem 1: timelines of drawn examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing import examples as shared
from gradsync.drawing.style import Drawn
from gradsync.papers.mgwfbp import examples


def timelines(*cases: tuple[str, str, str]) -> Callable[[Settings, Path], Drawn]:
    """Panels (title, case, scheme) of four-layer examples."""

    def draw(settings: Settings, results: Path) -> Drawn:
        return shared.timelines({title: examples.example(case, name)[1:] for title, case, name in cases})

    return draw
