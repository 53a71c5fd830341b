"""What Fig. 9 of the MG-WFBP paper and the gap to the optimum are made from, made up, on few and small clusters."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from gradsync import papers
from gradsync.configuration import settings
from gradsync.papers import tables
from gradsync.papers.table import Table
from gradsync.plan.workload import Layer, Workload
from made_up_logs import made_up_logs
from made_up_mgwfbp_runs import LAYERS

FIGURE9 = {"nodes": [4], "gap_nodes": [4, 8], "forward_shares": [0.0, 0.5], "bucket_sweep": 3}
SLOPE = 2.0e-9  # seconds per byte of the synthetic 8-node log


def configured(**changes: Any) -> settings.Settings:
    return settings.parse({"version": 1, "name": "tiny", "papers": {"mgwfbp": {**FIGURE9, **changes}}}, "test")


def logged(folder: Path) -> AbstractContextManager[None]:
    """What the authors logged, made up, while the context lasts."""
    layers = [(elements + 64, microseconds, 2.0) for elements, microseconds in LAYERS]
    return made_up_logs(folder, layers, {2: (1e-3, SLOPE), 8: (1e-3, SLOPE)})


def resnet50_profile() -> Workload:
    rng = np.random.default_rng(0)
    layers = tuple(
        Layer(name=f"t{i}", bytes=4 * int(elements), backward_seconds=float(seconds))
        for i, (elements, seconds) in enumerate(
            zip(rng.integers(64, 2_000_000, 20), rng.exponential(0.05, 20), strict=True)
        )
    )
    return Workload(name="resnet50", forward_seconds=0.4, update_seconds=0.1, layers=layers)


def write_inputs(results: Path) -> Path:
    (results / "profile" / "resnet50").mkdir(parents=True)
    (results / "profile" / "resnet50" / "workload.json").write_text(resnet50_profile().to_json())
    return results


def make(results: Path, *ids: str) -> dict[str, Table]:
    """The tables of these ids, written as the command line writes them."""
    written = {}
    for name in ids:
        written[name] = papers.compute("mgwfbp", name, configured(), results)
        tables.write(written[name], results / "tables" / "mgwfbp", name)
    return written
