"""The trainings of this configuration as measured rows of Tables 3 and 4.

A launch stands for the model that has its images' size. On GPUs 2DTAR-SGD is `torus2d_native`, and Dense-SGD
`horovod_buckets`, whose all-reduces are NCCL's own. Speed-up and efficiency are over one rank of the same launch.

Rows are shown and decide no claim: launches have another precision, optimizer and batch than the paper as they like,
and norms are not dealt to ranks (PTO), as the paper's are under 2DTAR-SGD and MSTopK-SGD.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradsync.configuration.launches import Training
from gradsync.configuration.settings import Settings
from gradsync.files.results import Result
from gradsync.papers.cloud_topk.cases import DENSE, MSTOPK, RESNETS, TORUS
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.declaration import Place
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, samples, shown_only
from gradsync.papers.training import contenders, repeated

STANDS_FOR = {  # by device: contender -> scheme of the tables, the paper's own first
    "cpu": {DENSE: DENSE, TORUS: TORUS, MSTOPK: MSTOPK},
    "cuda": {"horovod_buckets": DENSE, "torus2d_native": TORUS, MSTOPK: MSTOPK},
}
TABLES = {  # models and schemes of each
    "table3": (("resnet50_224", "resnet50_96", "vgg19", "transformer"), (DENSE, TORUS, MSTOPK)),
    "table4": (RESNETS, (TORUS, MSTOPK)),
}
OF_ONE_SIZE = ("vgg19", "transformer")  # models that the tables have at a single size


def launches(settings: Settings) -> list[Training]:
    """The first launch of each model of the tables and number of nodes: of whole nodes, beside one rank alone."""
    fitting = [
        launch
        for launch in settings.of(PAPER)
        if case(launch) in (*RESNETS, *OF_ONE_SIZE)
        and launch.references
        and not launch.recipe
        and launch.ranks_a_node
        and launch.ranks % launch.ranks_a_node == 0
    ]
    first: dict[tuple[str, int], Training] = {}
    for launch in fitting:
        first.setdefault((case(launch), nodes(launch)), launch)
    return list(first.values())


def measured_launches(place: Place) -> list[Path]:
    """What these launches leave behind."""
    return [place.results / "runs" / "train" / launch.job / "schemes.json" for launch in launches(place.settings)]


def case(launch: Training) -> str:
    """The model of the tables that a launch stands for, if they have it."""
    return launch.model if launch.model in OF_ONE_SIZE else f"{launch.model}_{launch.size}"


def nodes(launch: Training) -> int:
    """On how many nodes its ranks are."""
    return launch.ranks // (launch.ranks_a_node or 1)


def batch(launch: Training) -> int:
    """Samples of a rank in an iteration."""
    return launch.batch * launch.accumulate


def iterations(table: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """A row per launch and scheme that a table has, under the names of its columns."""
    models, schemes = TABLES[table]
    for launch in launches(settings):
        if case(launch) not in models:
            continue
        folder = results / "runs" / "train" / launch.job
        there = contenders(folder)
        for contender, scheme in STANDS_FOR[settings.device].items():
            if contender not in there or scheme not in schemes:
                continue
            run = Result.load(folder / contender / "result.json")
            row = {"rung": run.rung, "model": case(launch), "scheme": scheme, "assumption": "", **repeated(run)}
            row |= {"nodes": nodes(launch), "workers": launch.ranks, "batch": batch(launch), LAUNCH: launch.job}
            row |= {"computation_seconds": run.summary.get("computation_seconds")}
            row |= cells("throughput", launch.ranks * batch(launch) / samples(row, "iteration_seconds"))
            row["note"] = "; ".join([*run.notes, f"{launch.job}: {_how(launch, settings)}"])
            yield shown_only(row) | {REPEATS: row[REPEATS]}


def _how(launch: Training, settings: Settings) -> str:
    """What of a launch the paper has in its own way."""
    where = f"{nodes(launch)} nodes of {launch.ranks_a_node} {'GPUs' if settings.device == 'cuda' else 'processes'}"
    return f"{where}, {batch(launch)} samples each, {launch.optimizer}, {launch.precision}"
