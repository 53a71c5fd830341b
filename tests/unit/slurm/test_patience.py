"""Snakemake's Slurm executor, and what is added to it: jobs that were preempted for good have failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from gradsync.slurm import patience


class Executor:
    """It hands back every job whose state says nothing of an end, as the plugin's does."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.logger = SimpleNamespace(warning=lambda text: None)

    def report_job_success(self, job: Any) -> None:
        raise AssertionError(job)

    def report_job_error(self, job: Any, msg: str, aux_logs: list[str]) -> None:
        self.failed.append(msg)


def looks(*answers: dict[str, str]) -> tuple[list[list[str]], list[str]]:
    """The jobs that are active after each look, and what is said of those that failed."""
    executor, states = Executor(), dict[str, str]()
    jobs = [SimpleNamespace(external_jobid=name, aux={"slurm_logfile": f"{name}.log"}) for name in ("1", "2")]
    left: list[list[str]] = []

    async def query(command: str, logger: Any) -> tuple[dict[str, str], float]:
        return answers[len(left)], 0.0

    noted = patience.noting(query, states)

    async def check(_: Any, active: list[Any]) -> AsyncIterator[Any]:
        await noted("squeue", None)
        for job in active:
            yield job

    patient = patience.patient(check, states)

    async def run() -> None:
        active = jobs
        for _ in answers:
            active = [job async for job in patient(executor, active)]
            left.append([job.external_jobid for job in active])

    asyncio.run(run())
    return left, executor.failed


def test_a_job_that_is_put_back_goes_on():
    preempted, queued = {"1": "PREEMPTED", "2": "RUNNING"}, {"1": "PENDING", "2": "RUNNING"}
    assert looks(preempted, queued, preempted, queued) == (4 * [["1", "2"]], [])


def test_a_job_that_is_not_put_back_has_failed(monkeypatch):
    cancelled: list[str] = []
    monkeypatch.setattr(patience.subprocess, "run", lambda command, **_: cancelled.append(command[1]))
    preempted = {"1": "PREEMPTED", "2": "RUNNING"}
    left, failed = looks(preempted, preempted, preempted)
    assert left == [["1", "2"], ["2"], ["2"]]
    assert cancelled == ["1"]
    assert failed == ["SLURM-job '1' was not put back, SLURM status is: 'PREEMPTED'."]
