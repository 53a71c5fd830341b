"""The ASC-WFBP paper's own model of two all-reduces at once, and where it leaves the link behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsync.costs import pairwise_contention
from gradsync.errors import InputError

A, B, GAMMA = 1.4e-3, 1.7e-9, 1.5  # the paper's


def test_throughputs_are_eq_7_and_9():
    assert pairwise_contention.throughput_one(100, 20, 0.3) == pytest.approx(100 / 50)
    assert pairwise_contention.throughput_two(100, 20, 0.3, 2.0) == pytest.approx(200 / 80)


@given(m=st.floats(8e3, 4e6), gamma=st.floats(1, 2))
def test_two_are_better_than_one_eq_10(m, gamma):
    assert pairwise_contention.throughput_two(m, A, B, gamma) > pairwise_contention.throughput_one(m, A, B)


def test_rest_of_the_first_is_eq_12():
    """T1 = 2 + 0.5 x 16 = 10 s from 3 on; at 8 half of its time has passed."""
    assert pairwise_contention.penalty_bytes(16, 3.0, 8.0, 100, 2.0, 0.5) == pytest.approx(8)
    assert pairwise_contention.penalty(8, 0.5, 1.5) == pytest.approx(2)
    # Fig. 2: half the overlap, half the penalty
    assert pairwise_contention.penalty_bytes(16, 3.0, 3.0, 100, 2.0, 0.5) == 16


def test_no_more_overlaps_than_the_second_has_asc_e11():
    assert pairwise_contention.penalty_bytes(16, 3.0, 8.0, 4, 2.0, 0.5) == 4
    assert pairwise_contention.penalty_bytes(16, 3.0, 8.0, 4, 2.0, 0.5, corrected=False) == pytest.approx(8)


@pytest.mark.parametrize("corrected", [True, False])
def test_a_first_that_is_over_or_empty_costs_nothing_asc_e10(corrected):
    assert pairwise_contention.penalty_bytes(16, 3.0, 13.0, 100, 2.0, 0.5, corrected) == 0
    assert pairwise_contention.penalty_bytes(16, 3.0, 500.0, 100, 2.0, 0.5, corrected) == 0
    assert pairwise_contention.penalty_bytes(0, 3.0, 4.0, 100, 2.0, 0.5, corrected) == 0
    assert pairwise_contention.penalty_bytes(16, 8.0, 3.0, 100, 2.0, 0.5, corrected) == 16  # not before it began
    assert pairwise_contention.penalty_bytes(16, 3.0, 3.0, 100, 0.0, 0.0, corrected) == 0  # it takes no time


def test_the_papers_constants_exceed_its_link_asc_e32():
    """9.43 Gbit/s: 2 bytes on the wire for each, or 2 (P-1)/P of P = 32: from 1.7 to 1.9 MB on."""
    link = 9.43e9 / 8
    without, with_ring = (
        pairwise_contention.exceeds_link_from(A, B, GAMMA, link / 2),
        pairwise_contention.exceeds_link_from(A, B, GAMMA, link / (2 * 31 / 32)),
    )
    assert 1.6e6 < without < 1.7e6
    assert 1.85e6 < with_ring < 1.95e6
    for m, beyond in ((without * 0.999, False), (without * 1.001, True)):
        assert (pairwise_contention.throughput_two(m, A, B, GAMMA) > link / 2) is beyond
    # on the wire they tend to 12.5 Gbit/s
    assert 16 * pairwise_contention.throughput_two(1e12, A, B, GAMMA) == pytest.approx(12.55e9, rel=1e-3)
    assert pairwise_contention.exceeds_link_from(A, 1 / (link / 2), 2.0, link / 2) == float("inf")


@pytest.mark.parametrize(("gamma", "lanes"), [(0.99, 2), (2.01, 2), (float("nan"), 2), (1.0, 0), (float("inf"), 4)])
def test_a_gamma_that_no_link_gives_is_refused(gamma, lanes):
    with pytest.raises(InputError, match=f"gamma {gamma:g}"):
        pairwise_contention.refuse_gamma(gamma, lanes)


def test_no_lane_is_refused_as_such():
    with pytest.raises(InputError, match="gamma 1 for 0 lanes: at least 1 lane"):
        pairwise_contention.refuse_gamma(1.0, 0)


def test_a_gamma_of_a_link_is_taken():
    for gamma, lanes in ((1, 1), (1, 2), (1.5, 2), (2, 2), (2.5, 3)):
        pairwise_contention.refuse_gamma(gamma, lanes)
