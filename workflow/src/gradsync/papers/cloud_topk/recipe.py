"""Table 5: times to 93 % top-5 accuracy as published, and the 28 epochs of the recipe at the throughputs of Table 4.

Simulated is training alone, without validation and without changes of the input size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk.cases import RESNETS, band
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.cloud_topk.testbed import bench
from gradsync.papers.published import Published
from gradsync.papers.table import Table, file, read

RUNS = {
    "fastai": "FastAI, Sep 2018",
    "huawei_2018": "Huawei, Dec 2018",
    "huawei_2019": "Huawei, May 2019",
    "alibaba": "Alibaba, Mar 2020",
    "ours": "the authors, Aug 2020",
}
OURS = "ours"
NO_LINK = "the paper has no interconnect of this entry (CT-E33)"


def table5(settings: Settings, results: Path) -> Table:
    """A row per entry of Table 5 as published, and the authors' run at each point of the band of Table 4."""
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
    frame = pd.DataFrame([*rows, *_simulated(settings, results)])
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
    return Table(frame, display, caption)


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
