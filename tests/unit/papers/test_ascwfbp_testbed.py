"""The testbed of the ASC-WFBP paper: derived numbers are those of the published ones, broken inputs are named."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from gradsync import papers
from gradsync.claims.published import load
from gradsync.errors import InputError
from gradsync.papers.ascwfbp import testbed
from made_up_ascwfbp import BENCH, PAPER, TENSORS, configured, write_counted


def test_derived_numbers_are_those_of_the_published_ones():
    bench = testbed.bench(configured())
    published = {entry.id: entry.value for entry in load(PAPER).published}
    for model in testbed.MODELS:
        file_ = bench.file
        for scheme, name in (("wfbp", "wfbp"), ("mgwfbp", "mgwfbp"), ("ascwfbp", "asc")):
            assert bench.published(scheme, model) == published[f"{model}-{name}"]
        assert file_.number("parameters", "value", model) == published[f"{model}-parameters"]
        assert file_.number("tensors", "value", model) == published[f"{model}-tensors"]
        assert file_.number("batch", "value", model) == published[f"{model}-batch"]
        speedup, largest = published[f"{model}-speedup"], published[f"{model}-largest-speedup"]
        assert published[f"{model}-share"] == pytest.approx(speedup / largest, abs=2e-3)
        # S = P (t_f + t_b) / iteration
        derived = speedup * bench.published("ascwfbp", model) / bench.workers
        assert bench.computation(model) == pytest.approx(derived, rel=2e-3)
        wire = bench.smallest_communication(published[f"{model}-parameters"])
        assert file_.number("smallest_communication_seconds", "value", model) == pytest.approx(wire, rel=2e-3)
        assert bench.largest_speedup(model) == pytest.approx(largest, rel=5e-3)
    assert published["mean-share"] == pytest.approx(
        np.mean([published[f"{m}-share"] for m in testbed.MODELS]), abs=1e-3
    )
    assert bench.forward("resnet152") == pytest.approx(published["resnet152-forward"], rel=1e-3)


def test_every_point_of_the_band_has_the_published_total_and_another_computation(tmp_path):
    results, config = write_counted(tmp_path), configured()
    bench = testbed.bench(config)
    assert testbed.POINTS[0] == testbed.CENTRE
    for model in testbed.MODELS:
        workloads = [testbed.workload(model, config, results, point) for point in testbed.POINTS]
        for point, workload in zip(testbed.POINTS, workloads, strict=True):
            assert workload.forward_seconds + workload.backward_seconds == pytest.approx(bench.computation(model))
            assert workload.forward_seconds == pytest.approx(bench.forward(model, point))
        shares = [layer.backward_seconds / workloads[0].backward_seconds for layer in workloads[0].layers]
        counted = [operations for _, operations in TENSORS[model]]
        assert shares == pytest.approx(np.array(counted) / sum(counted))
        assert len({layer.backward_seconds for layer in workloads[-1].layers}) == 1  # even
        assert len({workload.forward_seconds for workload in workloads}) == (1 if model == "resnet152" else 3)


# Broken inputs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": {"value": "about"}}, r"gamma\.value: needs a number"),
        ({"forward_share": {"resnet152": 0.3}}, r"forward_share\.resnet152: needs a list of numbers"),
        ({"fitted_bytes": {"value": []}}, r"fitted_bytes\.value: needs a list of numbers"),
    ],
)
def test_a_broken_testbed_is_named(tmp_path, changes, message):
    results = write_counted(tmp_path / "results")
    broken = tmp_path / "bench.yaml"
    broken.write_text(yaml.safe_dump(yaml.safe_load(BENCH.read_text()) | changes))
    with pytest.raises(InputError, match=message) as refused:
        papers.compute("ascwfbp", "table4", configured(papers={"ascwfbp": {"testbed": str(broken)}}), results)
    assert "\n" not in str(refused.value)


def test_missing_inputs_are_named(tmp_path):
    with pytest.raises(InputError, match=r"counted/resnet152/workload\.json: can't be read"):
        papers.compute("ascwfbp", "table3", configured(), tmp_path)
    with pytest.raises(InputError, match=r"contention\.json: can't be read"):
        papers.compute("ascwfbp", "fig5", configured(), tmp_path)
    with pytest.raises(InputError, match=r"table4\.csv: can't be read.*make that table first"):
        papers.compute("ascwfbp", "own_model", configured(), tmp_path)
    with pytest.raises(InputError, match=r"asc.yaml does not exist"):
        configured(papers={"ascwfbp": {"testbed": "config/clusters/asc.yaml"}})
