"""Table 5: times to 93 % top-5 accuracy as published, and the 28 epochs of the recipe at the throughputs of Table 4.

Simulated is training alone, without validation and without changes of the input size. Measured is the time to the test
accuracy (top-1) at which a launch of the configuration stops, of each of its schemes: `reached` of its `seeds` came to
`accuracy`, after `seconds` (the median of these seeds; empty if none did), and the training ended at `last_accuracy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.files.results import Result
from gradsync.papers.cloud_topk.cases import RESNETS, band
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.published import Published
from gradsync.papers.repeats import LAUNCH
from gradsync.papers.table import Table, file, read
from gradsync.papers.training import contenders

RUNS = {
    "fastai": "FastAI, Sep 2018",
    "huawei_2018": "Huawei, Dec 2018",
    "huawei_2019": "Huawei, May 2019",
    "alibaba": "Alibaba, Mar 2020",
    "ours": "the authors, Aug 2020",
}
OURS = "ours"
NO_LINK = "the paper has no interconnect of this entry (CT-E33)"
TRAINED = ["model", "nodes", "contender", LAUNCH, "reached", "seeds", "last_accuracy"]


def table5(settings: Settings, results: Path) -> Table:
    """A row per entry of Table 5 as published, the authors' run at each point of Table 4's band, and trainings here."""
    known = Published(PAPER, settings)
    rows: list[dict[str, Any]] = []
    for entry in RUNS:
        number = f"table5-{entry.replace('_', '-')}"
        link = known.value(f"{number}-link") if f"{number}-link" in known.entries else None
        rows.append(
            {
                "rung": "derived",
                "entry": entry,
                "seconds": known.value(number),
                "link_gbit_per_second": link,
                "accuracy": known.value("target-accuracy"),
                "assumption": "",
                "note": NO_LINK if link is None else "",
            }
        )
    frame = pd.DataFrame([*rows, *_simulated(settings, results), *_trained(settings, results)])
    frame = frame.reindex(columns=[*dict.fromkeys([*frame.columns, *TRAINED])])
    trained = frame[frame[LAUNCH].notna()]
    shown, simulated = frame[frame.rung == "derived"], frame[frame.rung == "simulated"]
    drawn = str(bench(settings).points[0])
    display = pd.DataFrame(
        {
            "run": shown.entry.map(RUNS),
            "link [Gbit/s]": shown.link_gbit_per_second.map(lambda rate: "-" if pd.isna(rate) else f"{rate:g}"),
            "time [s]": shown.seconds.map("{:g}".format),
            "simulated [s]": [
                band(simulated, "seconds", drawn, ".0f") if each == OURS else "-" for each in shown.entry
            ],
        }
    )
    caption = (
        "Table 5: ResNet-50 to a top-5 accuracy of 93 % on 128 V100, as published. Simulated: the images of the 28 "
        "epochs at the throughputs of Table 4, over its band; training alone, without validation."
    )
    return Table(frame, display, caption, () if trained.empty else (_here(trained, settings),))


def _here(trained: pd.DataFrame, settings: Settings) -> tuple[str, pd.DataFrame]:
    """The part on trainings of this configuration: its caption and what people read."""
    label_of = labels(settings)
    display = pd.DataFrame(
        [
            {
                "model": MODELS.get(row.model, row.model),
                "ranks": f"{row.nodes:.0f}",
                "scheme": label_of(row.contender),
                "top-1 accuracy": f"{row.accuracy:g}",
                "reached by": f"{row.reached:.0f} of {row.seeds:.0f} seeds",
                "time to it [s]": "-" if pd.isna(row.seconds) else f"{row.seconds:.1f}",
                "accuracy at the end": f"{row.last_accuracy:.3f}",
            }
            for _, row in trained.iterrows()
        ]
    )
    noted = trained[trained.note != ""].drop_duplicates([LAUNCH, "note"])
    notes = "".join(f" {row.launch}: {row.note}." for _, row in noted.iterrows())
    caption = (
        "Trainings of this configuration that stop at a test accuracy, on this machine or cluster. Time is that of the "
        "scheme's own iterations and changes of plan, without validation, the median over the seeds that reached the "
        f"accuracy. All schemes of a launch go on until each has reached it, or to the last epoch.{notes}"
    )
    return caption, display


def _trained(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """A row per launch that stops at a test accuracy, and contender."""
    for launch in settings.of(PAPER):
        if launch.target_accuracy is None:
            continue
        folder = results / "runs" / "train" / launch.job
        for contender in contenders(folder):
            run = Result.load(folder / contender / "result.json")
            yield {
                "rung": run.rung,
                "entry": launch.job,
                "seconds": run.summary.get("seconds_to_accuracy"),
                "accuracy": launch.target_accuracy,
                "assumption": "",
                "note": "; ".join(run.notes),
                "model": launch.model,
                "nodes": launch.ranks,
                "contender": contender,
                LAUNCH: launch.job,
                "reached": int(run.summary.get("reached_target", 0)),
                "seeds": int(run.summary["seeds"]),
                "last_accuracy": run.summary.get("accuracy"),
            }


def _simulated(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """The sum over the input sizes of the recipe, each with its scheme."""
    testbed, known = bench(settings).file, Published(PAPER, settings)
    iterations = read(file(results, PAPER, "table4"), ["rung", "model", "scheme", "assumption", "throughput"])
    images = testbed.positive("dawnbench", "images_per_epoch")
    total: pd.Series | None = None
    for size in RESNETS:
        scheme = known.scheme({"scheme": testbed.text("dawnbench", "schemes", size)})
        chosen = iterations[
            (iterations.rung == "simulated") & (iterations.model == size) & (iterations.scheme == scheme)
        ]
        seconds = images * testbed.positive("dawnbench", "epochs", size) / chosen.set_index("assumption").throughput
        total = seconds if total is None else total + seconds
    assert total is not None
    for assumption, seconds in total.items():
        yield {"rung": "simulated", "entry": OURS, "seconds": seconds, "assumption": assumption, "note": ""}
