"""The trainings of this configuration as measured rows of Tables 3 and 4.

A launch stands for the model that has its images' size. On GPUs 2DTAR-SGD is `torus2d_native`, and Dense-SGD
`horovod_buckets`, whose all-reduces are NCCL's own. Speed-up and efficiency are over one rank of the same launch.
What was not measured on nodes of as many GPUs as the paper's, or at its batch, is shown and decides nothing.
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
from gradsync.papers.cloud_topk.testbed import Bench, bench
from gradsync.papers.declaration import Place
from gradsync.papers.repeats import LAUNCH, REPEATS, cells, samples, shown_only
from gradsync.papers.training import contenders, repeated
from gradsync.statistics.quiet import UNDER_LOAD

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
    """The launches of models of the tables on whole nodes, in one stage, beside one rank alone."""
    return [
        launch
        for launch in settings.of(PAPER)
        if case(launch) in (*RESNETS, *OF_ONE_SIZE)
        and launch.references
        and not launch.recipe
        and launch.ranks_a_node
        and launch.ranks % launch.ranks_a_node == 0
    ]


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
        folder, why = results / "runs" / "train" / launch.job, undecidable(launch, settings)
        there = contenders(folder)
        for contender, scheme in STANDS_FOR[settings.device].items():
            if contender not in there or scheme not in schemes:
                continue
            run = Result.load(folder / contender / "result.json")
            row = {"rung": run.rung, "model": case(launch), "scheme": scheme, "assumption": "", **repeated(run)}
            row |= {"nodes": nodes(launch), "workers": launch.ranks, "batch": batch(launch), LAUNCH: launch.job}
            row |= {"computation_seconds": run.summary.get("computation_seconds")}
            row |= cells("throughput", launch.ranks * batch(launch) / samples(row, "iteration_seconds"))
            row["note"] = "; ".join([*run.notes, *([why] if why else [])])
            under_load = any(UNDER_LOAD in note for note in run.notes)
            yield shown_only(row) | {REPEATS: row[REPEATS]} if why or under_load else row


def undecidable(launch: Training, settings: Settings) -> str:
    """Why no claim is decided on a launch, if so."""
    testbed: Bench = bench(settings)
    if settings.device != "cuda":
        return f"{launch.job}: processors; what is judged trains on GPUs"
    if launch.ranks_a_node != testbed.gpus:
        return f"{launch.job}: nodes of {launch.ranks_a_node}; what is judged trains on nodes of {testbed.gpus} GPUs"
    batches = testbed.file.content["batch"]["value"]
    wanted = batches.get(case(launch), batch(launch))  # that of the Transformer is not published
    if batch(launch) != wanted:
        return f"{launch.job}: {batch(launch)} samples per GPU; what is judged has {wanted}"
    return ""
