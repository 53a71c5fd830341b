"""Training in phases, executed on real ranks: as an oracle that does the same in one process; no gradient is lost."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import small_model
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.plan import PASSING
from gradsync.runtime.compute import oracle_gradient
from rank_programs import BROKEN_OFF, PHASE_RANKS, PHASE_TURNS, QUEUED_PHASES, phased_plans

EQUAL = 1e-9
CASES = phased_plans()
LOSSLESS = ("flushed", "carried", "carried on")  # of plain SGD, whose parameters are a sum of gradients


@functools.cache
def oracle(name: str) -> tuple[list[dict[str, np.ndarray]], np.ndarray, list[np.ndarray]]:
    """(buffers of every rank at the end, the sum of all gradients of all ranks, residuals of all ranks at switches)."""
    phased, switches = CASES[name]
    model = small_model.build()
    first = phased.plans[0]
    states = [{"parameter": small_model.first(first)} for _ in range(PHASE_RANKS)]
    computed, total, left = set(), np.zeros(first.elements), []
    for number, (plan, begin, end) in enumerate(
        zip(phased.plans, (0, *switches), (*switches, PHASE_TURNS), strict=True)
    ):
        own = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
        residual = [state.pop("residual", None) for state in states]

        def gradient(rank, pass_, values, own=own):
            made = own(rank, pass_, values)
            if (rank, pass_) not in computed:
                computed.add((rank, pass_))
                total[:] += made
            return made

        if number and residual[0] is not None:
            left.append(np.array(residual))
            passes = plan.passes

            def with_residual(rank, pass_, values, gradient=gradient, residual=residual, passes=passes):
                return gradient(rank, pass_, values) + (residual[rank] if pass_ % passes == 0 else 0.0)

            def alone(rank, pass_, values, residual=residual, passes=passes):
                return residual[rank] if pass_ % passes == 0 else np.zeros_like(residual[rank])

            if phased.residual == "flush":
                states = kept(plan, evaluate(plan, 1, alone, states, first=begin))
            else:
                states = kept(plan, evaluate(plan, 1, with_residual, states, first=begin))
                begin += 1
        states = kept(plan, evaluate(plan, end - begin, gradient, states, first=begin))
    return states, total, left


def kept(plan, states):
    names = [buffer.name for buffer in plan.buffers if buffer.role not in PASSING]
    return [{name: state[name] for name in names} for state in states]


@pytest.mark.parametrize("name", CASES)
def test_executed_equals_the_oracle_and_resumes_bit_for_bit(on_ranks, name):
    phased, switches = CASES[name]
    for plan in phased.plans:
        check(plan)
    wanted = oracle(name)[0]
    for rank, result in enumerate(on_ranks("phases", PHASE_RANKS)):
        for device in ("", "queued ") if name in QUEUED_PHASES else ("",):
            ended = result[device + name]
            assert not isinstance(ended, str), f"rank {rank}: {ended}"
            whole = ended[None]
            for tensor in phased.plans[-1].tensors:
                values = wanted[rank]["parameter"][tensor.start : tensor.stop]
                np.testing.assert_allclose(whole[tensor.name], values, rtol=0, atol=EQUAL)
                for turn, resumed in ended.items():
                    assert resumed[tensor.name].tobytes() == whole[tensor.name].tobytes(), turn
            if name in BROKEN_OFF:
                assert ended.keys() == {None, *(turn + around for turn in switches for around in (-1, 0, 1))}


@pytest.mark.parametrize("name", LOSSLESS)
def test_all_gradients_are_applied_over_the_switch(name):
    """Each rank's parameters have moved by the learning rate times the mean of all gradients, sparse ones too."""
    phased, _ = CASES[name]
    states, total, left = oracle(name)
    assert left
    assert all(np.abs(residual.sum(0)).max() > 1e-3 for residual in left)  # there is something to lose
    first = small_model.first(phased.plans[0])
    for state in states:
        np.testing.assert_allclose((first - state["parameter"]) * PHASE_RANKS / small_model.LR, total, atol=1e-8)


def test_without_error_feedback_gradients_are_lost_and_nothing_is_left():
    states, total, left = oracle("nothing left")
    moved = (small_model.first(CASES["nothing left"][0].plans[0]) - states[0]["parameter"]) * PHASE_RANKS
    assert not left
    assert np.abs(moved / small_model.LR - total).max() > 1e-3
