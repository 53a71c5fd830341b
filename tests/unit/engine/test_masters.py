"""Who works, who serves, and where the trained model lies."""

from __future__ import annotations

import pytest

import methods
import tiny_plans as tiny
from gradsync.engine.masters import Kept, kept, masters, workers
from small_model import plan as averaging

SERVED = {"async_sgd": "parameter", "async_msgd": "parameter", "async_easgd": "centre", "original_easgd": "centre"}
SHARED = ("hogwild_sgd", "hogwild_easgd")


@pytest.mark.parametrize("method", [*SERVED, "sync_easgd1"])
def test_a_master_computes_nothing_and_holds_what_is_trained(method):
    plan = methods.planned(method, 4)
    assert (masters(plan), workers(plan)) == ((0,), (1, 2, 3))
    assert kept(plan) == Kept(SERVED.get(method, "centre"), (0,))


@pytest.mark.parametrize("method", ["sync_easgd2", "sync_easgd3", "knl_easgd"])
def test_a_worker_may_hold_the_centre(method):
    plan = methods.planned(method, 3)
    assert (masters(plan), workers(plan)) == ((), (0, 1, 2))
    assert kept(plan) == Kept("centre", (0,))


@pytest.mark.parametrize("method", SHARED)
def test_memory_that_all_share_holds_it(method):
    plan = methods.planned(method, 3)
    assert not masters(plan)
    assert kept(plan) == Kept("centre", (0,))


def test_without_a_centre_it_is_the_mean_of_the_workers():
    assert kept(averaging("wfbp", 3)) == Kept("parameter", (0, 1, 2))


def test_tiny_plans_keep_to_it():
    assert kept(tiny.async_server(2)) == Kept("parameter", (0,))
    assert kept(tiny.easgd_round_robin(2)) == Kept("centre", (0,))
    assert kept(tiny.hogwild(2)) == Kept("centre", (0,))
