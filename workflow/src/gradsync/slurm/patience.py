"""Snakemake's Slurm executor (2.8) forgets its jobs when Slurm does not answer, and looks for them ever less often.

If the status query fails five times in a row, as in the seconds in which a controller restarts, the executor hands none
of its active jobs back, and Snakemake, which asks for those that are still active, waits for ever for jobs that nobody
looks for any more. This module hands them back, so that they are looked for again.

The executor waits 10 s longer from look to look, up to 180 s, whatever `seconds-between-status-checks` says, and a
cluster is idle meanwhile. With this module it waits that many seconds again: a look is one squeue for all jobs.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

PLUGIN = "snakemake_executor_plugin_slurm"
Check = Callable[[Any, list[Any]], AsyncIterator[Any]]


def install() -> None:
    """Have the executor keep its jobs and the pace, if Snakemake has loaded it; a second call does nothing more."""
    plugin = sys.modules.get(PLUGIN)
    if plugin is not None and not hasattr(plugin.Executor.check_active_jobs, "patient"):
        plugin.Executor.check_active_jobs = patient(plugin.Executor.check_active_jobs)
        plugin.Executor.next_seconds_between_status_checks = property(_as_set, lambda executor, seconds: None)


def _as_set(executor: Any) -> float:
    return float(executor.workflow.remote_execution_settings.seconds_between_status_checks)


def patient(check: Check) -> Check:
    """`check` of an executor, after which each active job has ended or is handed back."""

    async def check_active_jobs(executor: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        accounted: set[int] = set()  # ended or handed back, by identity

        def recorded(report: Callable[..., Any]) -> Callable[..., Any]:
            def reported(job: Any, *arguments: Any, **keywords: Any) -> Any:
                accounted.add(id(job))
                return report(job, *arguments, **keywords)

            return reported

        executor.report_job_success = recorded(executor.report_job_success)
        executor.report_job_error = recorded(executor.report_job_error)
        try:
            async for job in check(executor, active_jobs):
                accounted.add(id(job))
                yield job
        finally:
            del executor.report_job_success, executor.report_job_error  # the class's own again
        forgotten = [job for job in active_jobs if id(job) not in accounted]
        if forgotten:
            executor.logger.warning(
                f"Slurm did not tell how {len(forgotten)} job(s) are: they are looked for again. If its controller is"
                " away for good (`scontrol ping`), interrupt this run; the same command goes on later."
            )
        for job in forgotten:
            yield job

    check_active_jobs.patient = True  # type: ignore[attr-defined]
    return check_active_jobs
