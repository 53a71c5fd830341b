"""A step of two tensors, and plans of it, whose bounds are worked out by hand."""

from __future__ import annotations

import pytest

from gradsync import updates
from gradsync.collectives import NATIVE
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.transforms.step import Step
from tiny_workloads import workload

LOAD = workload([800, 400], [1.0, 3.0], forward=2.0, update=0.5)


def plan_of(
    load: Workload = LOAD, ranks: int = 4, lanes: int = 2, *, algorithm: str = NATIVE, shape=(), **step
) -> Plan:
    messages = tuple(Message(i, i, f"lane{i % lanes}") for i in range(len(load.layers)))
    return updates.plan("ssgd", "plan", load, messages, ranks, algorithm=algorithm, shape=shape, step=Step(**step))


def same(seconds):
    return pytest.approx(seconds, rel=1e-12)
