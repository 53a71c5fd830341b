"""Why a claim is not decided on a rung, in classes, and the command that would decide it.

The command is one that was found: a configuration of this checkout makes the rows that the claim's check looks up
(`papers/coverage.py`). Where none does, it is told which launches a copy of the nearest would need.
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
from gradsync.configuration.settings import Emulation, Settings, Training
from gradsync.errors import InputError
from gradsync.papers.coverage import Coverage, enough, never
from gradsync.statistics.intervals import repeats_needed

LOCAL, CLUSTER = "snakemake --cores {cores} --configfile {config}", "snakemake --profile slurm --configfile {config}"
MINE = "config/mine.yaml"
NEEDS = {"emulated": " (Linux, root or a user namespace)"}
BAND = "the band of what the paper doesn't publish holds points of both kinds"
NOTHING = "no command: a published number would"
SHARED = re.compile(r"\b(\d+) ranks share (\d+) cores")


class Remedy(NamedTuple):
    """A class of reasons, and what would decide its claims; `add`: launches that a configuration would need for it."""

    reason: str
    remedy: str
    add: tuple[str, ...] = ()


class Remedies:
    """What the configurations of a checkout would decide."""

    def __init__(self, config: str, known: Mapping[str, Settings], papers: Iterable[Paper]) -> None:
        """`config`: whose verdicts they are; `known`: it and all others by path."""
        self.config, self.known = config, known
        self.papers = {paper.meta.key: paper for paper in papers}
        self._coverages: dict[tuple[str, ...], Coverage] = {}

    @classmethod
    def of(cls, config: str, here: Settings, papers: Iterable[Paper], folder: Path) -> Remedies:
        """With the configurations in a folder; what can't be read as one there is left out."""
        known = {config: here}
        for path in sorted(folder.glob("*.yaml")):
            if path.resolve() == Path(config).resolve():
                continue
            try:
                known[str(path)] = settings.load(path)
            except InputError:
                continue
        return cls(config, known, papers)

    def remedy(self, verdict: Verdict) -> Remedy:
        """Of a verdict that decides nothing."""
        paper = self.papers[verdict.paper]
        claim = next(each for each in paper.claims if each.id == verdict.claim)
        if verdict.reason.endswith(NOT_MADE):
            return Remedy(f"its table {NOT_MADE}", self._command(self.config))
        if verdict.rung in COMPUTED:
            return self._computed(verdict, claim)
        if why := never(verdict.paper, verdict.table, verdict.rung):
            return Remedy(f"{verdict.rung}: {why}", "no configuration does")
        return self._timed(verdict, _asked(paper, claim))

    def _computed(self, verdict: Verdict, claim: Claim) -> Remedy:
        if verdict.margin is None:
            return Remedy(f"{verdict.rung}: {verdict.reason}", self._again())
        if claim.one_sided and claim.one_sided in verdict.reason:
            return Remedy(f"{verdict.rung}: {claim.one_sided}, so that a simulation can't refute it", NOTHING)
        return Remedy(f"{verdict.rung}: {BAND}", NOTHING)

    def _timed(self, verdict: Verdict, asked: list[Keys]) -> Remedy:
        rung = verdict.rung
        if shared := SHARED.search(verdict.reason):
            cores = max(self._coverage(self.config, verdict).cores(asked), int(shared[1]))
            again = LOCAL.format(cores=cores, config=self.config)
            return Remedy(f"{rung}: more ranks than this machine's {shared[2]} cores", f"on {cores} cores: `{again}`")
        short = verdict.margin is not None or "no interval" in verdict.reason
        if not short and not self._lacking(self.config, verdict, asked):
            return Remedy(f"{rung}: {verdict.reason}", self._again())
        reason = "too few repeats, or an interval that holds both answers" if short else "not in this configuration"
        reason = f"{rung}: {reason}"
        for config in self.known:
            if config != self.config and not self._lacking(config, verdict, asked):
                cores = self._coverage(config, verdict).cores(asked)
                return Remedy(reason, self._command(config, cores, rung))
        if short:
            more = f"more `iterations` of its launch: at least {repeats_needed()} blocks"
            return Remedy(reason, self._copied(self.config, 0, rung), (more,))
        config = self._nearest(verdict, asked)
        cores = self._coverage(config, verdict).most_cores(asked)
        add = _launches(self._lacking(config, verdict, asked), verdict.table, self._coverage(config, verdict))
        if not all(enough(launch) for launch in self._of(config, verdict)):  # which the new ones would be copied from
            add += (f"`iterations` of at least {repeats_needed()} blocks",)
        return Remedy(f"{reason}, nor in any other here", self._copied(config, cores, rung), add)

    def _coverage(self, config: str, verdict: Verdict) -> Coverage:
        key = (config, verdict.paper, verdict.table, verdict.rung)
        if key not in self._coverages:
            self._coverages[key] = Coverage(*key[1:], self.known[config])
        return self._coverages[key]

    def _lacking(self, config: str, verdict: Verdict, asked: list[Keys]) -> list[Keys]:
        """All that is asked for where the configuration doesn't show the paper, or its testbed can't be read."""
        if verdict.paper not in self.known[config].papers:
            return asked
        try:
            return self._coverage(config, verdict).lacking(asked)
        except InputError:
            return asked

    def _nearest(self, verdict: Verdict, asked: list[Keys]) -> str:
        """The configuration that lacks the fewest of the rows, of those whose ranks can run such schemes."""

        def distance(config: str) -> tuple[int, bool]:
            return len(self._lacking(config, verdict, asked)), not self._of(config, verdict)

        able = [config for config in self.known if self._coverage(config, verdict).able(asked)]
        return min(able or [self.config], key=distance)

    def _of(self, config: str, verdict: Verdict) -> Sequence[Training | Emulation]:
        """The launches that a configuration has for the paper on this rung."""
        chosen = self.known[config]
        return chosen.emulated_of(verdict.paper) if verdict.rung == "emulated" else chosen.of(verdict.paper)

    def _command(self, config: str, cores: int = 0, rung: str = "", file: str = "") -> str:
        """Of a configuration, or of a copy of it in another `file`."""
        if self.known[config].device == "cuda":
            return f"`{CLUSTER.format(config=file or config)}`"
        told = f"`{LOCAL.format(cores=max(2, cores), config=file or config)}`"
        return (f"on {cores} cores: " if cores > 2 else "") + told + NEEDS.get(rung, "")

    def _again(self) -> str:
        return f"where that is given: {self._command(self.config)}"

    def _copied(self, config: str, cores: int, rung: str) -> str:
        """A copy of a configuration, run; what it needs more is told behind."""
        return f"{self._command(config, cores, rung, MINE)}, a copy of `{config}` with"


def _asked(paper: Paper, claim: Claim) -> list[Keys]:
    """Keys of the rows that a check looks up, each once, schemes by our names."""
    found: dict[tuple[tuple[str, Key], ...], None] = {}

    def note(column: str, keys: Keys) -> float:
        ours = {key: paper.schemes[str(value)] if key == "scheme" else value for key, value in keys.items()}
        found[tuple(sorted((key, value) for key, value in ours.items() if value is not None))] = None
        return float("nan")

    Walk(note).run(claim.check)
    return [dict(keys) for keys in found]


def _launches(lacking: list[Keys], table: str, there: Coverage) -> tuple[str, ...]:
    """What the rows are of, each once: whole launches, or a scheme of one that is there; nodes are the paper's."""
    found: dict[str, None] = {}
    for keys in lacking:
        launch = there.of | _launch(keys)
        if "model" in keys and "model" not in launch:
            continue  # of all models together: it comes with the last of them
        of = f"{launch['model']}" if "model" in launch else f"`{table}`"
        of += f" on {launch['nodes']:g} nodes" if "nodes" in launch else ""
        of += f", batch {launch['batch']:g}" if "batch" in launch else ""
        added = "scheme" in keys and not there.lacking([launch])
        found[f"{keys['scheme']} of {of}" if added else of] = None
    return tuple(found)


def _launch(keys: Keys) -> Keys:
    """Those of the keys that single out a launch."""
    return {key: keys[key] for key in ("model", "nodes", "batch") if key in keys and keys[key] != "mean"}
