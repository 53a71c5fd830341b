"""torch's GradScaler in a loop whose plan applies gradients itself: what DDP trains with it, on two ranks."""

from __future__ import annotations

import numpy as np
import pytest

import attached_models as attached
from rank_programs.of_attached_scales import CASES, OVERFLOWS, STEPS

RANKS = 2


@pytest.fixture
def ended(on_ranks):
    return on_ranks("attached_with_a_scaler", RANKS)


@pytest.mark.parametrize("scheme", attached.UPDATING)
@pytest.mark.parametrize("case", CASES)
def test_it_trains_what_ddp_trains_with_the_same_scales(ended, case, scheme):
    for result in ended:
        for step, reference in zip(result[case, scheme], result[case, "ddp"], strict=True):
            assert step.scale == reference.scale
            for name, value in reference.parameters.items():
                np.testing.assert_allclose(step.parameters[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
        scales = [step.scale for step in result[case, scheme]]
        assert min(scales) < scales[-1]  # it has grown again
        assert len(scales) == STEPS


@pytest.mark.parametrize("scheme", attached.UPDATING)
@pytest.mark.parametrize("case", CASES)
def test_a_step_that_overflows_on_one_rank_leaves_all_bits_on_every_rank(ended, case, scheme):
    first, second = (result[case, scheme] for result in ended)
    for step, (one, other) in enumerate(zip(first, second, strict=True)):
        for name, value in one.parameters.items():
            np.testing.assert_array_equal(value, other.parameters[name], err_msg=f"{step} {name}")
    for steps in (first, second):
        assert steps[0].kept
        for before, after in zip(range(STEPS), range(1, STEPS), strict=False):
            alike = all(
                (old[name] == new[name]).all()
                for old, new in (
                    (steps[before].parameters, steps[after].parameters),
                    (steps[before].kept, steps[after].kept),
                )
                for name in old
            )
            assert alike == (after in OVERFLOWS), after


def test_loops_that_leave_the_scaler_out_are_refused(ended):
    for result in ended:
        assert "knows of no loss scale: give attach(.., scaler=)" in result["refused"]["without"]
        assert "step by scaler.step(optimizer)" in result["refused"]["stepped alone"]
        assert "the loss scale differs between ranks: 1024.0 on rank 0, 2048.0 on rank 1" in result["refused"]["scales"]
