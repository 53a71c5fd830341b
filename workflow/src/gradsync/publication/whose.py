"""Whether results are those of a configuration, by what they record: launches, settings, whose claims were decided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from gradsync.claims import Origin
from gradsync.configuration.launches import ElasticTraining, Training
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.files.results import Result

# settings of a launch that all its runs record as they are
RECORDED = (
    *("model", "data", "size", "batch", "accumulate", "epochs", "iterations", "recipe", "block", "segment"),
    *("precision", "seeds", "device", "compute_seconds"),
)
NAMED = 3  # reasons that a message has in full


class Run(NamedTuple):
    """A run, by its folder below the results."""

    where: str
    result: Result

    @property
    def launch(self) -> str:
        """The folder of its launch, `runs/KIND/JOB`."""
        return str(PurePath(*PurePath(self.where).parts[:3]))


def runs(results: Path) -> list[Run]:
    """Every run that left a result, sorted; raises InputError if one can't be read."""
    return [
        Run(str(file.parent.relative_to(results)), Result.load(file))
        for file in sorted((results / "runs").rglob("result.json"))
    ]


def refuse_others(settings: Settings, results: Path, origin: Origin, of_runs: Iterable[Run]) -> None:
    """Raises InputError if results record that they are of another configuration; `origin`: that of their ledger."""
    if reasons := list(dict.fromkeys(_reasons(settings, origin, of_runs))):
        more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
        raise InputError(
            f"results {results}: they are not those of the configuration {settings.name}: "
            f"{'; '.join(reasons[:NAMED])}{more}: name their own with --config, or run it again"
        )


def _reasons(settings: Settings, origin: Origin, of_runs: Iterable[Run]) -> Iterator[str]:
    if origin.configuration not in ("", settings.name):
        yield f"claims.json was decided for {origin.configuration}"
    expected = _launches(settings)
    for run in of_runs:
        if run.launch not in expected:
            yield f"{run.launch} is no launch of it"
            continue
        recorded = {"ranks": run.result.ranks, "rung": run.result.rung} | run.result.settings
        if isinstance(testbed := recorded.get("testbed"), dict):
            recorded["rate"] = testbed.get("bits_per_second")
        for key, value in expected[run.launch].items():
            if key in recorded and recorded[key] != value:
                yield f"{run.launch} ran with {key} {json.dumps(recorded[key])}, and it has {json.dumps(value)}"


def _launches(settings: Settings) -> Mapping[str, Mapping[str, Any]]:
    """What runs of each launch record, by the folder of the launch."""
    launches: dict[str, Mapping[str, Any]] = {f"runs/loading/{settings.loading.job}": {}}
    for train in settings.training:
        launches[f"runs/train/{train.job}"] = {"ranks": train.ranks} | _options(train, settings.device)
    for elastic in settings.elastic:
        hosts = {"rung": "emulated", "rate": elastic.rate} if elastic.testbed else {"rung": "measured"}
        launches[f"runs/elastic/{elastic.job}"] = {
            **{"workers": elastic.workers, **hosts},
            **_options(elastic, settings.device),
        }
    for emulated in settings.emulated:
        launches[f"runs/emulated/{emulated.job}"] = {
            key: getattr(emulated, key) for key in ("ranks", "iterations", "block")
        }
    return launches


def _options(launch: Training | ElasticTraining, device: str) -> dict[str, Any]:
    """The options that it is started with, as JSON has them."""
    options: dict[str, Any] = json.loads(json.dumps(asdict(launch.options(device))))
    return {key: value for key, value in options.items() if key in RECORDED}
