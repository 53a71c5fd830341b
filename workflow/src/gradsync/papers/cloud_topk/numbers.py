"""What the paper publishes, as tables: every number, and the instances of Table 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.published import Published
from gradsync.papers.table import Table

PAPER = "cloud_topk"
CLOUDS = {"aws": "AWS p3.16xlarge", "aliyun": "Aliyun c10g1.20xlarge", "tencent": "Tencent 18XLARGE320"}


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
