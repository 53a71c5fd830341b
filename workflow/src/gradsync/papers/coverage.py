"""Which timed rows of a paper's tables a configuration makes, by the keys that claims single rows out with.

`coverage.py` of a paper's package has `rows(table, rung, settings)` and `NEVER`: by table and rung, why no
configuration makes rows that decide a claim. A paper whose tables are of one model each also has
`common_keys(table, settings)`: the keys that all rows of the table share; one that trains from several seeds has
`OF_SEEDS`: the tables whose repeats are seeds. `never_of_row(table, rung, keys)` is `NEVER` for single rows. All of
this is known without running anything.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import NamedTuple

from gradsync.configuration import schemes
from gradsync.configuration.launches import Emulation, Training
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.statistics.intervals import repeats_needed

Keys = dict[str, float | str]


class Row(NamedTuple):
    """A row by its keys; `cores`: how many its ranks need on one machine (0: they have GPUs, or only wait).

    A claim is decided point by point of the band: rows of another `point` don't serve it. `needs`: the key of the
    configuration without which the row decides nothing.
    """

    keys: Keys
    cores: int = 0
    point: str = ""
    needs: str = ""


def modules(papers: Iterable[str]) -> list[str]:
    """The modules `coverage` of the papers that have one: the code behind the commands in `claims.md`."""
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
        """Every row; none if the paper has no module `coverage`."""
        module = _module(self.paper)
        return tuple(module.rows(self.table, self.rung, self.settings)) if module else ()

    @cached_property
    def common_keys(self) -> Keys:
        """The keys that all rows share and that claims need not name."""
        module = _module(self.paper)
        return module.common_keys(self.table, self.settings) if hasattr(module, "common_keys") else {}  # type: ignore[union-attr]

    @property
    def of_seeds(self) -> bool:
        """Whether repeats are seeds of a launch, and not its blocks."""
        return self.table in getattr(_module(self.paper), "OF_SEEDS", ())

    def lacking(self, needed_rows: Iterable[Keys]) -> list[Keys]:
        """The needed rows that the configuration does not make at one point of the band: that of which it has most."""
        needed, by_point = list(needed_rows), defaultdict[str, list[Row]](list)
        for row in self.rows:
            by_point[row.point].append(row)
        lacks = [[keys for keys in needed if not any(_matches(row, keys) for row in at)] for at in by_point.values()]
        return min(lacks, key=len, default=needed)

    def needs(self, needed_rows: Iterable[Keys]) -> tuple[str, ...]:
        """What the configuration must be given for the needed rows, each once."""
        needs = (row.needs for keys in needed_rows for row in self.rows if _matches(row, keys))
        return tuple(dict.fromkeys(each for each in needs if each))

    def cores(self, needed_rows: Iterable[Keys]) -> int:
        """How many cores of one machine the needed rows take."""
        return max((row.cores for keys in needed_rows for row in self.rows if _matches(row, keys)), default=0)

    def most_cores(self, needed_rows: Iterable[Keys]) -> int:
        """How many cores of one machine the nodes of the needed rows take, even if the configuration lacks the rows."""
        nodes = [int(keys["nodes"]) for keys in needed_rows if "nodes" in keys]
        return cores(max(nodes, default=0), self.settings) if self.rung == "measured" else 0

    def can_run(self, needed_rows: Iterable[Keys]) -> bool:
        """Whether the ranks of the configuration can run the schemes of the needed rows."""
        known = schemes.load(self.settings.schemes)
        try:
            for keys in needed_rows:
                if "scheme" in keys and self.rung == "measured":
                    for part in known[str(keys["scheme"])].parts:
                        part.refuse_device(self.settings.device)
        except (KeyError, InputError):
            return False
        return True


def never(paper: str, table: str, rung: str, needed_rows: Iterable[Keys] = ()) -> str:
    """Why no configuration decides a claim on this table on this rung, or on such rows; empty if one may."""
    module = _module(paper)
    if module is None:
        return ""
    of_rows = getattr(module, "never_of_row", lambda table, rung, keys: "")
    reasons = (str(module.NEVER.get((table, rung), "")), *(of_rows(table, rung, keys) for keys in needed_rows))
    return next(filter(None, reasons), "")


def has_interval(launch: Training | Emulation) -> bool:
    """Whether the times of a launch have an interval: a block is one repeat (whole epochs: as many as the data has)."""
    return launch.iterations == 0 or launch.iterations // launch.block >= repeats_needed()


def scheme_names(launch: Training, settings: Settings) -> list[str]:
    """The names of the schemes that a launch trains with."""
    known = schemes.load(settings.schemes)
    where = (launch.job, launch.ranks, settings.device, launch.scaled, launch.optimizer)
    return [each.name for each in schemes.pick(known, launch.schemes, *where, in_phases=True)]


def cores(ranks: int, settings: Settings) -> int:
    """How many cores of one machine so many ranks take; 0 if they have GPUs."""
    return ranks if settings.device == "cpu" else 0


def _module(paper: str) -> ModuleType | None:
    name = f"gradsync.papers.{paper}"
    if importlib.util.find_spec(name) is None or importlib.util.find_spec(f"{name}.coverage") is None:
        return None
    return importlib.import_module(f"{name}.coverage")


def _matches(row: Row, keys: Keys) -> bool:
    return all(row.keys.get(key) == value for key, value in keys.items())
