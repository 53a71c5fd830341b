"""What the paper publishes, as tables: every number, the instances of Table 1, and the runs of Table 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.published import Published
from gradsync.papers.table import Table

PAPER = "cloud_topk"
CLOUDS = {"aws": "AWS p3.16xlarge", "aliyun": "Aliyun c10g1.20xlarge", "tencent": "Tencent 18XLARGE320"}
RUNS = {
    "fastai": "FastAI, Sep 2018",
    "huawei_2018": "Huawei, Dec 2018",
    "huawei_2019": "Huawei, May 2019",
    "alibaba": "Alibaba, Mar 2020",
    "ours": "the authors, Aug 2020",
}
OURS = "ours"
NO_LINK = "the paper has no interconnect of this entry (CT-E33)"
NOT_SIMULATED = "it needs the iterations of Table 4, which no code simulates yet"


def published(settings: Settings, results: Path) -> Table:
    """A row per number of the paper, with what it belongs to; schemes are under our names."""
    known = Published(PAPER, settings)
    rows: list[dict[str, Any]] = [
        {
            "rung": "derived",
            "number": number,
            "table": entry.get("table", ""),
            "model": entry.get("model", ""),
            "scheme": known.scheme(entry),
            "over": known.scheme(entry, "over"),
            "unit": entry.get("unit", ""),
            "nodes": entry.get("nodes"),
            "value": known.value(number),
        }
        for number, entry in known.entries.items()
    ]
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "place": [entry.get("place", "") for entry in known.entries.values()],
            "number": frame.number,
            "what": [entry.get("text", "") for entry in known.entries.values()],
            "value": frame.value.map("{:.10g}".format),
            "unit": frame.unit,
        }
    )
    return Table(frame, display, "Every number that the paper publishes and that is held against anything.")


def table1(settings: Settings, results: Path) -> Table:
    """A row per instance type of Table 1."""
    known = Published(PAPER, settings)
    frame = pd.DataFrame(
        [
            {
                "rung": "derived",
                "cloud": cloud,
                "memory_gib": known.value(f"{cloud}-memory"),
                "network_gbit_per_second": known.value(f"{cloud}-network"),
            }
            for cloud in CLOUDS
        ]
    )
    display = pd.DataFrame(
        {
            "instance": frame.cloud.map(CLOUDS),
            "memory [GiB]": frame.memory_gib.map("{:g}".format),
            "network [Gbit/s]": frame.network_gbit_per_second.map("{:g}".format),
        }
    )
    return Table(frame, display, "Table 1: instances of eight V100, as published.")


def table5(settings: Settings, results: Path) -> Table:
    """A row per entry of Table 5 as published; the authors' run is not simulated yet."""
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
                "note": NO_LINK if link is None else "",
            }
        )
    rows.append({"rung": "simulated", "entry": OURS, "note": NOT_SIMULATED})
    frame = pd.DataFrame(rows)
    shown = frame[frame.rung == "derived"]
    display = pd.DataFrame(
        {
            "run": shown.entry.map(RUNS),
            "link [Gbit/s]": shown.link_gbit_per_second.map(lambda rate: "-" if pd.isna(rate) else f"{rate:g}"),
            "time [s]": shown.seconds.map("{:g}".format),
        }
    )
    caption = "Table 5: ResNet-50 to a top-5 accuracy of 93 % on 128 V100, as published."
    return Table(frame, display, caption)
