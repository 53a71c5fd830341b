"""Two ranks that share one GPU: their queues are the GPU's, their messages Gloo's, by way of the host.

NCCL wants a GPU per rank. What does not depend on NCCL (which queue waits for which mark, in what order ranks launch
messages) is tried on one.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import small_model
from gradsync import schedules
from gradsync.engine.oracle import evaluate
from gradsync.runtime.compute import oracle_gradient

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")


@pytest.fixture(scope="module")
def on_a_shared_gpu(tmp_path_factory):
    from real_ranks import run_on_ranks

    return run_on_ranks("shared_gpu_schedules", 2, tmp_path_factory.mktemp("shared"))


@pytest.mark.parametrize("name", [*schedules.names(), "two lanes"])
def test_every_schedule_equals_the_oracle(on_a_shared_gpu, name):
    plan = small_model.two_lanes(small_model.plan("wfbp", 2)) if name == "two lanes" else small_model.plan(name, 2)
    model = small_model.build()
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
    ends = evaluate(plan, small_model.TURNS, gradient, {"parameter": small_model.first(plan)})
    for end, result in zip(ends, on_a_shared_gpu, strict=True):
        assert not isinstance(result[name], str), result[name]
        np.testing.assert_allclose(result[name], end["parameter"], rtol=0, atol=1e-9)


def test_halves_of_messages_are_timed(on_a_shared_gpu):
    first, second = (result["kinds"] for result in on_a_shared_gpu)
    assert first == second  # the mean of the ranks, on each
    assert {*first} == {f"{kind}@{over}" for kind in ("reduce_scatter", "all_gather") for over in ("world", "local")}
    assert all(seconds > 0 for times in first.values() for repeats in times.values() for seconds in repeats)
