"""Two ranks of DDP on Gloo, recorded by PyTorch's profiler and imported together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradsync.experiments import imported, predict
from gradsync.plan.workload import Workload
from rank_programs import RECORDED_STEPS

RANKS = 2


@pytest.mark.deep
def test_two_recorded_ranks_become_one_workload_with_points(on_ranks, tmp_path):
    recorded = on_ranks("recorded_beside_others", RANKS)
    traces = []
    for rank, each in enumerate(recorded):
        traces.append(tmp_path / f"rank{rank}.json")
        traces[-1].write_text(each["trace"])
    output, points = tmp_path / "workload.json", tmp_path / "points.csv"
    told = imported.load(imported.Options(traces=(*reversed(traces),), output=output, points=points))
    workload = Workload.load(output)
    assert (told["ranks"], told["steps"]) == (RANKS, RECORDED_STEPS - 1)
    assert sorted(layer.elements for layer in workload.layers) == sorted(recorded[0]["sizes"].values())
    assert told["backward_low"] <= workload.backward_seconds <= told["backward_high"]
    assert 1 <= told["imbalance"] <= RANKS
    ahead = [each["clock_ahead"] for each in told["of_ranks"]]
    assert ahead[0] == 0
    assert abs(ahead[1]) < 1  # both ranks read the clock of one machine
    # a message takes no longer than on the rank that noted the shortest of its size
    shortest = {}
    for each in recorded:
        for event in json.loads(each["trace"])["traceEvents"]:
            if event.get("name") == "gloo:all_reduce":
                size = 4 * int(np.prod(event["args"]["Input Dims"][0]))
                shortest[size] = min(event["dur"] * 1e-6, shortest.get(size, np.inf))
    assert told["points"]
    for point in told["points"]:
        assert point["ranks"] == RANKS
        assert point["seconds"] >= shortest[point["bytes"]] * (1 - 1e-6)
    planned = predict.plan(
        predict.Options(workload=str(output), allreduce="a=1e-4,b=1e-9", schedule="mgwfbp", ranks=RANKS)
    )
    assert planned["iteration_seconds"] >= workload.forward_seconds + workload.backward_seconds
