"""Training between emulated hosts by methods with a master, whose computation waits: through the workflow."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from gradsync.configuration.elastic import LATE
from gradsync.statistics.quiet import UNDER_LOAD
from project_copy import Project
from testbeds import netns, real

RATE, COMPUTING = 4e8, 0.3
CONFIGURATION = f"""\
version: 1
name: tiny
papers: {{easgd_knl: {{}}}}
elastic:
  - {{model: lenet5, workers: 2, methods: [original_easgd], batch: 4, iterations: 4, segment: 4, conformance: 1,
     testbed: switch, rate: {RATE:.1e}, compute_seconds: {COMPUTING}}}
"""
TABLE = "results/tiny/tables/easgd_knl/table3"


@real
def test_a_method_trains_between_hosts_at_the_rate_of_their_links(tmp_path):
    before, project = netns(), Project(tmp_path)
    project.write("config/tiny.yaml", CONFIGURATION)
    ended = project.snakemake(f"{TABLE}.csv")
    assert ended.returncode == 0, ended.stdout
    assert netns() == before
    results = project.folder / "results" / "tiny"
    found = json.loads((results / "runs" / "elastic" / "lenet5-2" / "original_easgd" / "result.json").read_text())
    workload = json.loads((results / "counted" / "lenet5-2" / "workload.json").read_text())
    transfer = 8 * sum(layer["bytes"] for layer in workload["layers"]) / RATE
    assert found["rung"] == "emulated"
    assert found["settings"]["testbed"]["topology"] == "switch"
    assert found["settings"]["compute_seconds"] == COMPUTING
    # in a sweep the master sends all weights to each of two workers and takes theirs; 3 %: what a bucket gives at once
    assert found["summary"]["iteration_seconds"] > 0.97 * 4 * transfer
    slowest = found["summary"]["slowest_for_backward_seconds"]
    assert slowest > 0.98 * COMPUTING
    late = slowest > (1 + LATE) * COMPUTING  # as ranks are at times on shared cores, which is then said
    assert any("were to take 0.3 s" in note for note in found["notes"]) == late
    few = found["provenance"]["cores"] < found["ranks"]
    assert any("ranks share" in note for note in found["notes"]) == (late and few)
    frame = pd.read_csv(project.folder / f"{TABLE}.csv")
    row = frame[frame.rung == "emulated"].iloc[0]
    assert row.observed_iteration_seconds == pytest.approx(found["summary"]["iteration_seconds"] / 2)  # of one worker
    loaded = any(UNDER_LOAD in note for note in found["notes"])
    assert pd.isna(row.iteration_seconds) == (late or loaded)  # such times decide nothing
    assert row.assumption.endswith("hosts switch of 400 Mbit/s, computation 0.3 s")
