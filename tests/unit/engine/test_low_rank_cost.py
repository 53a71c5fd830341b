"""What planners take for a low-rank message is what the simulator has for it."""

from __future__ import annotations

import pytest

from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.low_rank_cost import KERNELS, LowRankCost
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from low_rank_plans import load
from tiny_workloads import workload

COST = Linear(2.0, 1e-3)
TIMES = {"powersgd_left": 1e-3, "powersgd_right": 3e-3, "powersgd_decode": 2e-3}


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_message_of_the_whole_model_takes_what_is_simulated(rank: int, feedback: bool) -> None:
    """Copies of tensors that travel whole are free here, as planners have them."""
    of = load().model_copy(update={"kernels": {"copy": 0.0, **TIMES}})
    options = {"compressor_options": {"rank": rank}, "error_feedback": feedback}
    scheme = Scheme(name="factored", schedule="single", compressor="powersgd", **options)
    low_rank = scheme.low_rank(of)
    assert low_rank is not None
    cost = LowRankCost(COST, low_rank, of)
    plan = schemes.plan(scheme, of, COST, 4)
    seconds = simulate(plan, of, alpha_beta.around(COST, 4)).iteration_seconds()
    computed = of.forward_seconds + of.backward_seconds + of.update_seconds
    assert seconds == pytest.approx(computed + cost.seconds(of.bytes))
    sent = sum(plan.bytes_of(op.writes) for op in plan.communications())
    assert cost.least_transfer_seconds(of.bytes) == pytest.approx(1e-3 * sent)
    assert cost.startup_seconds(of.bytes) == pytest.approx(4.0)
    assert cost.describe().startswith(low_rank.describe())


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_kernel_is_free(kernel: str) -> None:
    known = {name: seconds for name, seconds in TIMES.items() if name != kernel}
    of = workload([4000, 40], [1.0, 1.0], shapes=[(20, 50), (10,)], kernels={"copy": 0.0, **known})
    with pytest.raises(InputError, match=f"needs a kernel.*{kernel}|{kernel}"):
        schemes.plan(Scheme(name="powersgd", schedule="mgwfbp"), of, COST, 2)


def test_factors_of_a_large_matrix_travel_faster_and_start_twice() -> None:
    of = workload([4_000_000, 40], [1.0, 1.0], shapes=[(1000, 1000), (10,)])
    low_rank = Scheme(name="powersgd").low_rank(of)
    assert low_rank is not None
    cost = LowRankCost(COST, low_rank, of)
    assert cost.seconds(of.bytes) == pytest.approx(2 * 2.0 + 1e-3 * 4 * (2000 + 2000 + 10))
    assert cost.seconds(of.bytes) < COST.seconds(of.bytes) / 100
