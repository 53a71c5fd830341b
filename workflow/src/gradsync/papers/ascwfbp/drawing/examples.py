"""Fig. 1 to 3 of the ASC-WFBP paper and the counterexample to its Theorem 1: timelines of drawn examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing import examples as shared
from gradsync.drawing.style import Drawn
from gradsync.papers.ascwfbp import examples


def timelines(figure_name: str, titles: Mapping[str, str]) -> Callable[[Settings, Path], Drawn]:
    """A figure with a panel per schedule of a drawn example, under these titles."""

    def draw(settings: Settings, results: Path) -> Drawn:
        return shared.timelines({title: examples.example(figure_name, name)[1:] for name, title in titles.items()})

    return draw
