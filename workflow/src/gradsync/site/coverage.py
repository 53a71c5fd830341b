"""Which scheme was executed or simulated with which model, which launches refuse it and why; systems of the papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gradsync.claims import cells
from gradsync.claims.published import Paper
from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.labels import MODELS
from gradsync.site.claimed import RUNGS

Pair = tuple[str, str]  # model, scheme
EXECUTED = ("measured", "emulated")
REFUSED, NOT_ASKED = "refused", ""


class Coverage(NamedTuple):
    """States of every pair of model and scheme: the rungs that it has values on, or refused; `why` it is refused."""

    models: tuple[str, ...]
    schemes: tuple[Scheme, ...]
    states: Mapping[Pair, tuple[str, ...]]
    why: Mapping[Pair, str]

    def of_scheme(self, name: str) -> tuple[str, ...]:
        """The rungs on which a scheme has values with any model."""
        rungs = {rung for (_, scheme), states in self.states.items() if scheme == name for rung in states}
        return tuple(rung for rung in reversed(RUNGS) if rung in rungs)


class System(NamedTuple):
    """A system that a paper names; `ours`: the scheme that it is here, with its rungs or why there are none."""

    paper: Paper
    name: str
    ours: str
    rungs: tuple[str, ...]
    state: str


def coverage(settings: Settings, results: Path) -> Coverage:
    """The coverage of a configuration, from its results and from what its launches refuse."""
    known = schemes.load(settings.schemes)
    rungs: dict[Pair, set[str]] = {}
    for pair, rung in (*_of_runs(settings, results), *_of_tables(results)):
        if pair[1] in known:
            rungs.setdefault(pair, set()).add(rung)
    why = {pair: reason for pair, reason in _refusals(settings, known).items() if pair not in rungs}
    states = {pair: tuple(rung for rung in reversed(RUNGS) if rung in found) for pair, found in rungs.items()}
    models = dict.fromkeys(model for model, _ in sorted({*rungs, *why}, key=_by_model))
    return Coverage(tuple(models), tuple(known.values()), states | dict.fromkeys(why, (REFUSED,)), why)


def systems(papers: Iterable[Paper], settings: Settings, covered: Coverage) -> list[System]:
    """Every system of the papers, in the order of their files."""
    known = {scheme.name for scheme in covered.schemes}
    found = []
    for paper in papers:
        for name, ours in paper.schemes.items():
            here = ours if ours in known else None
            rungs = covered.of_scheme(here) if here else ()
            if here is None:
                state = "not there yet"
            elif rungs:
                state = ""
            elif paper.meta.key not in settings.papers:
                state = "there; this configuration doesn't show the paper"
            else:
                state = "there; no result of this configuration has it"
            found.append(System(paper, name, here or "", rungs, state))
    return found


def _of_runs(settings: Settings, results: Path) -> list[tuple[Pair, str]]:
    """(model and scheme, rung) of every run of the configuration's launches that has left a result or a prediction."""
    found = []
    launches: Sequence[tuple[str, str, str, str]] = [
        *(("measured", "train", launch.job, launch.model) for launch in settings.training),
        *(
            ("emulated" if launch.testbed else "measured", "elastic", launch.job, launch.model)
            for launch in settings.elastic
        ),
        *(("emulated", "emulated", launch.job, launch.model) for launch in settings.emulated),
    ]
    for rung, folder, job, model in launches:
        for file in (results / "runs" / folder / job).glob("*/result.json"):
            found.append(((model, file.parent.name), rung))
        for file in (results / "plans" / job).glob("*.prediction.json"):
            found.append(((model, file.name.removesuffix(".prediction.json")), "simulated"))
    return found


def _of_tables(results: Path) -> list[tuple[Pair, str]]:
    """(model and scheme, rung) of every row of a table that is simulated, emulated or measured."""
    found = []
    for file in sorted((results / "tables").glob("*/*.csv")):
        for row in cells.read(file) or ():
            rung = row.get("rung", "simulated")
            if row.get("model") and row.get("scheme") and rung in ("simulated", *EXECUTED):
                found.append(((row["model"], row["scheme"]), rung))
    return list(dict.fromkeys(found))


def _refusals(settings: Settings, known: dict[str, Scheme]) -> dict[Pair, str]:
    """Why every launch of a model refuses a scheme; the reason is that of the first launch."""
    refusals: dict[Pair, list[str]] = {}
    for launch in settings.training:
        steps = launch.ranks, settings.device, launch.scaled, launch.optimizer
        for name in known:
            try:
                schemes.pick(known, [name], launch.job, *steps, in_phases=True)
                reason = ""
            except InputError as error:
                reason = str(error)
            refusals.setdefault((launch.model, name), []).append(reason)
    return {pair: reasons[0] for pair, reasons in refusals.items() if all(reasons)}


def _by_model(pair: Pair) -> tuple[int, str]:
    names = list(MODELS)
    return (names.index(pair[0]) if pair[0] in names else len(names)), pair[0]
