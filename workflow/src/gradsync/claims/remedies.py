"""Why a claim is not decided on a rung, in classes, and the command that would decide it.

The command runs a configuration of this checkout that makes the rows that the claim's check looks up
(`papers/coverage.py`). If none does, the remedy names the launches that a copy of the nearest one would need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gradsync.claims.expressions import Key, Keys, Walk
from gradsync.claims.published import Claim, Paper
from gradsync.claims.verdicts import COMPUTED, NOT_MADE, Verdict
from gradsync.configuration import settings
from gradsync.configuration.launches import Emulation, Training
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers import declared
from gradsync.papers.coverage import Coverage, has_interval, never
from gradsync.statistics.intervals import NONE as NO_INTERVAL
from gradsync.statistics.intervals import repeats_needed

LOCAL, CLUSTER = "snakemake --cores {cores} --configfile {config}", "snakemake --profile slurm --configfile {config}"
MINE = "config/mine.yaml"
NEEDS = {"emulated": " (Linux, root or a user namespace)"}
BAND = "the band of what the paper doesn't publish holds points of both kinds"
NOTHING = "no command: a published number would"
SHARED = re.compile(r"\b(\d+) ranks share (\d+) cores")
NARROWS = "the interval narrows with the square root of their number"
NOT_THERE = re.compile(r"\b\d+ of \d+ seeds get to")


class Remedy(NamedTuple):
    """A class of reasons, and what would decide its claims; `add`: launches that a configuration would need for it."""

    reason: str
    remedy: str
    add: tuple[str, ...] = ()


NO_CODE = Remedy("no code makes its table yet", "no configuration does")


class Remedies:
    """What the configurations of a checkout would decide."""

    def __init__(self, config: str, known: Mapping[str, Settings], papers: Iterable[Paper]) -> None:
        """`config`: the configuration that the verdicts are of; `known`: that one and all others, by path."""
        self.config, self.known = config, known
        self.papers = {paper.meta.key: paper for paper in papers}
        self._coverages: dict[tuple[str, ...], Coverage] = {}

    @classmethod
    def of(cls, config: str, settings_of_config: Settings, papers: Iterable[Paper], folder: Path) -> Remedies:
        """The remedies by all configurations in a folder; files that can't be read as one are left out."""
        known = {config: settings_of_config}
        for path in sorted(folder.glob("*.yaml")):
            if path.resolve() == Path(config).resolve():
                continue
            try:
                known[str(path)] = settings.load(path)
            except InputError:
                continue
        return cls(config, known, papers)

    def remedy(self, verdict: Verdict) -> Remedy:
        """The remedy of a verdict that decides nothing."""
        paper = self.papers[verdict.paper]
        claim = next(each for each in paper.claims if each.id == verdict.claim)
        if verdict.reason.endswith(NOT_MADE):
            if verdict.table not in declared(verdict.paper).tables:
                return NO_CODE
            return Remedy(f"its table {NOT_MADE}", self._command(self.config))
        if verdict.rung in COMPUTED:
            return self._computed(verdict, claim)
        needed_rows = _needed_rows(paper, claim)
        if why := never(verdict.paper, verdict.table, verdict.rung, needed_rows):
            return Remedy(f"{verdict.rung}: {why}", "no configuration does")
        return self._timed(verdict, needed_rows)

    def _computed(self, verdict: Verdict, claim: Claim) -> Remedy:
        if verdict.margin is None:
            return Remedy(f"{verdict.rung}: {verdict.reason}", self._again())
        if claim.one_sided and claim.one_sided in verdict.reason:
            return Remedy(f"{verdict.rung}: {claim.one_sided}, so that a simulation can't refute it", NOTHING)
        return Remedy(f"{verdict.rung}: {BAND}", NOTHING)

    def _timed(self, verdict: Verdict, needed_rows: list[Keys]) -> Remedy:
        rung = verdict.rung
        lacking = self._lacking(self.config, verdict, needed_rows)
        if NOT_THERE.search(verdict.reason) and not lacking:
            longer = "more `iterations` of its launch, or other rates"
            return Remedy(f"{rung}: a seed that does not get there", self._copied(self.config, 0, rung), (longer,))
        if not lacking and (needs := self._coverage(self.config, verdict).needs(needed_rows)):
            return Remedy(f"{rung}: not given in this configuration", f"{self._command(self.config)} with", needs)
        if (sharing := SHARED.search(verdict.reason)) and not lacking:
            cores = max(self._coverage(self.config, verdict).cores(needed_rows), int(sharing[1]))
            again = LOCAL.format(cores=cores, config=self.config)
            return Remedy(f"{rung}: more ranks than this machine's {sharing[2]} cores", f"on {cores} cores: `{again}`")
        too_few = NO_INTERVAL in verdict.reason
        imprecise = too_few or verdict.margin is not None
        if not imprecise and not lacking:
            return Remedy(f"{rung}: {verdict.reason}", self._again())
        why_imprecise = "too few repeats" if too_few else "an interval that holds both answers"
        reason = f"{rung}: {why_imprecise if imprecise else 'not in this configuration'}"
        for config in sorted(self.known, key=lambda name: self.known[name].gpus):
            if config != self.config and not self._lacking(config, verdict, needed_rows):
                cores = self._coverage(config, verdict).cores(needed_rows)
                if needs := self._coverage(config, verdict).needs(needed_rows):
                    return Remedy(reason, f"{self._command(config, cores, rung)} with", needs)
                return Remedy(reason, self._command(config, cores, rung))
        if imprecise:
            keys, unit = ("seeds", "") if self._coverage(self.config, verdict).of_seeds else ("iterations", " blocks")
            least = f"at least {repeats_needed()}{unit}" if too_few else NARROWS
            more = f"more `{keys}` of its launch: {least}"
            return Remedy(reason, self._copied(self.config, 0, rung), (more,))
        config = self._nearest(verdict, needed_rows)
        cores = self._coverage(config, verdict).most_cores(needed_rows)
        add = _launches(self._lacking(config, verdict, needed_rows), verdict.table, self._coverage(config, verdict))
        # the new launches would be copied from those that are there
        if self._coverage(config, verdict).of_seeds:
            add += (f"at least {repeats_needed()} `seeds`",)
        elif not all(has_interval(launch) for launch in self._launches_of(config, verdict)):
            add += (f"`iterations` of at least {repeats_needed()} blocks",)
        return Remedy(f"{reason}, nor in any other here", self._copied(config, cores, rung), add)

    def _coverage(self, config: str, verdict: Verdict) -> Coverage:
        key = (config, verdict.paper, verdict.table, verdict.rung)
        if key not in self._coverages:
            self._coverages[key] = Coverage(*key[1:], self.known[config])
        return self._coverages[key]

    def _lacking(self, config: str, verdict: Verdict, needed_rows: list[Keys]) -> list[Keys]:
        """The rows that a configuration lacks: all if it doesn't show the paper or its testbed can't be read."""
        if verdict.paper not in self.known[config].papers:
            return needed_rows
        try:
            return self._coverage(config, verdict).lacking(needed_rows)
        except InputError:
            return needed_rows

    def _nearest(self, verdict: Verdict, needed_rows: list[Keys]) -> str:
        """The configuration that lacks the fewest rows, among those whose ranks can run the schemes."""

        def distance(config: str) -> tuple[int, bool]:
            return len(self._lacking(config, verdict, needed_rows)), not self._launches_of(config, verdict)

        able = [config for config in self.known if self._coverage(config, verdict).can_run(needed_rows)]
        return min(able or [self.config], key=distance)

    def _launches_of(self, config: str, verdict: Verdict) -> Sequence[Training | Emulation]:
        """The launches that a configuration has for the paper on this rung."""
        known = self.known[config]
        return known.emulated_of(verdict.paper) if verdict.rung == "emulated" else known.of(verdict.paper)

    def _command(self, config: str, cores: int = 0, rung: str = "", file: str = "") -> str:
        """The command that runs a configuration, or a copy of it with more in another `file`."""
        if self.known[config].gpus > 1 or (file and self.known[config].gpus):
            return f"`{CLUSTER.format(config=file or config)}`"
        command = f"`{LOCAL.format(cores=max(2, cores), config=file or config)}`"
        if self.known[config].gpus:
            return f"on one GPU: {command}"
        return (f"on {cores} cores: " if cores > 2 else "") + command + NEEDS.get(rung, "")

    def _again(self) -> str:
        return f"where that is given: {self._command(self.config)}"

    def _copied(self, config: str, cores: int, rung: str) -> str:
        """The start of a sentence: the command that runs a copy of a configuration with the additions that follow."""
        return f"{self._command(config, cores, rung, MINE)}, a copy of `{config}` with"


def _needed_rows(paper: Paper, claim: Claim) -> list[Keys]:
    """Keys of the rows that a check looks up, each once, with our names of the schemes."""
    rows: dict[tuple[tuple[str, Key], ...], None] = {}

    def note(column: str, keys: Keys) -> float:
        our_keys = {key: paper.schemes[str(value)] if key == "scheme" else value for key, value in keys.items()}
        rows[tuple(sorted((key, value) for key, value in our_keys.items() if value is not None))] = None
        return float("nan")

    Walk(note).run(claim.check)
    return [dict(keys) for keys in rows]


def _launches(lacking: list[Keys], table: str, coverage: Coverage) -> tuple[str, ...]:
    """What would make the rows, each once: whole launches, or a scheme in one that is there; nodes are the paper's."""
    launches: dict[str, None] = {}
    for keys in lacking:
        launch = coverage.common_keys | _launch(keys)
        if "model" in keys and "model" not in launch:
            continue  # a row of all models together comes with the last of them
        name = f"{launch['model']}" if "model" in launch else f"`{table}`"
        name += f" on {launch['nodes']:g} nodes" if "nodes" in launch else ""
        name += f", batch {launch['batch']:g}" if "batch" in launch else ""
        added = "scheme" in keys and not coverage.lacking([launch])
        launches[f"{keys['scheme']} of {name}" if added else name] = None
    return tuple(launches)


def _launch(keys: Keys) -> Keys:
    """The keys among these that single out a launch."""
    return {key: keys[key] for key in ("model", "nodes", "batch") if key in keys and keys[key] != "mean"}
