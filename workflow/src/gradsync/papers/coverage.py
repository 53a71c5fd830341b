"""Which timed rows of a paper's tables a configuration makes, by the keys that claims single rows out with.

A paper has them in `coverage.py` of its package: `rows(table, rung, settings)`, and `NEVER`, by table and rung, why no
configuration makes such that decide a claim; a paper whose tables are of one model also `of(table, settings)`: the keys
that all rows have. They are known without running anything.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import NamedTuple

from gradsync.configuration import schemes
from gradsync.configuration.settings import Emulation, Settings, Training
from gradsync.errors import InputError
from gradsync.statistics.intervals import repeats_needed

Keys = dict[str, float | str]


class Row(NamedTuple):
    """A row by its keys; `cores`: that its ranks need on one machine (0: they have GPUs, or only wait)."""

    keys: Keys
    cores: int = 0


def modules(papers: Iterable[str]) -> list[str]:
    """Those of the papers that tell, below the package: the code behind the commands in `claims.md`."""
    return [f"papers.{paper}.coverage" for paper in papers if _module(paper)]


@dataclass(frozen=True)
class Coverage:
    """What one configuration makes of one rung of one table."""

    paper: str
    table: str
    rung: str
    settings: Settings

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every row; of a paper that tells nothing of it, none."""
        module = _module(self.paper)
        return tuple(module.rows(self.table, self.rung, self.settings)) if module else ()

    @cached_property
    def of(self) -> Keys:
        """What all rows have that claims need not say."""
        module = _module(self.paper)
        return module.of(self.table, self.settings) if hasattr(module, "of") else {}  # type: ignore[union-attr]

    def lacking(self, asked: Iterable[Keys]) -> list[Keys]:
        """Those of the rows that are asked for which it does not make."""
        return [keys for keys in asked if not any(_matches(row, keys) for row in self.rows)]

    def cores(self, asked: Iterable[Keys]) -> int:
        """Cores of one machine that those rows need."""
        return max((row.cores for keys in asked for row in self.rows if _matches(row, keys)), default=0)

    def most_cores(self, asked: Iterable[Keys]) -> int:
        """Cores of one machine that so many nodes need as the rows have, whether it makes them or not."""
        nodes = [int(keys["nodes"]) for keys in asked if "nodes" in keys]
        return cores(max(nodes, default=0), self.settings) if self.rung == "measured" else 0

    def able(self, asked: Iterable[Keys]) -> bool:
        """Whether its ranks can run the schemes of those rows."""
        known = schemes.load(self.settings.schemes)
        try:
            for keys in asked:
                if "scheme" in keys and self.rung == "measured":
                    known[str(keys["scheme"])].refuse_device(self.settings.device)
        except (KeyError, InputError):
            return False
        return True


def never(paper: str, table: str, rung: str) -> str:
    """Why no configuration decides a claim on this table on this rung; empty where one may."""
    module = _module(paper)
    return str(module.NEVER.get((table, rung), "")) if module else ""


def enough(launch: Training | Emulation) -> bool:
    """Whether its times have an interval: a block is one repeat (whole epochs: as many as the data has)."""
    return launch.iterations == 0 or launch.iterations // launch.block >= repeats_needed()


def trained(launch: Training, settings: Settings) -> list[str]:
    """Names of the schemes of a launch."""
    known = schemes.load(settings.schemes)
    return [each.name for each in schemes.pick(known, launch.schemes, launch.job, launch.ranks, settings.device)]


def cores(ranks: int, settings: Settings) -> int:
    """That many ranks need on one machine; 0 where they have GPUs."""
    return ranks if settings.device == "cpu" else 0


def _module(paper: str) -> ModuleType | None:
    name = f"gradsync.papers.{paper}"
    if importlib.util.find_spec(name) is None or importlib.util.find_spec(f"{name}.coverage") is None:
        return None
    return importlib.import_module(f"{name}.coverage")


def _matches(row: Row, keys: Keys) -> bool:
    return all(row.keys.get(key) == value for key, value in keys.items())
