"""Snakemake's Slurm executor (2.8) forgets its jobs when Slurm does not answer, and looks for them ever less often.

If the status query fails five times in a row, as in the seconds in which a controller restarts, the executor hands none
of its active jobs back, and Snakemake, which asks for those that are still active, waits for ever for jobs that nobody
looks for any more. This module hands them back, so that they are looked for again.

It leaves a job that was preempted to Slurm, to be put back into the queue, and where Slurm does not do that, waits for
it for ever. This module counts a job that is preempted at two looks in a row as failed, so that it is tried again.

The executor waits 10 s longer from look to look, up to 180 s, whatever `seconds-between-status-checks` says, and a
cluster is idle meanwhile. With this module it waits that many seconds again: a look is one squeue for all jobs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from gradsync.slurm.launch import PLUGIN

PREEMPTED = "PREEMPTED"
Query = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]
Check = Callable[[Any, list[Any]], AsyncIterator[Any]]


def install() -> None:
    """Have the executor keep its jobs and the pace, if Snakemake has loaded it; a second call does nothing more."""
    plugin: Any = sys.modules.get(PLUGIN)
    if plugin is not None and not hasattr(plugin.Executor.check_active_jobs, "patient"):
        states: dict[str, str] = {}
        plugin.query_job_status = noting(plugin.query_job_status, states)
        plugin.Executor.check_active_jobs = patient(plugin.Executor.check_active_jobs, states)
        plugin.Executor.next_seconds_between_status_checks = property(_as_set, lambda executor, seconds: None)


def _as_set(executor: Any) -> float:
    return float(executor.workflow.remote_execution_settings.seconds_between_status_checks)


def noting(query: Query, states: dict[str, str]) -> Query:
    """`query`, the answers of which are in `states` (mutated): job -> state in Slurm."""

    async def query_job_status(command: str, logger: Any) -> tuple[dict[str, str] | None, float | None]:
        answer = await query(command, logger)
        states.clear()
        states.update(answer[0] or {})
        return answer

    return query_job_status


def patient(check: Check, states: dict[str, str]) -> Check:
    """`check` of an executor, after which each active job has ended or is handed back.

    `states` are those that the last query told. A job that is preempted, as it was at the look before, has failed.
    """
    preempted: set[str] = set()  # at the last look

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
                if job.external_jobid in preempted and states.get(job.external_jobid) == PREEMPTED:
                    # whatever Slurm does with it later, the next try is to be alone
                    subprocess.run(["scancel", str(job.external_jobid)], capture_output=True, check=False)
                    told = f"SLURM-job '{job.external_jobid}' was not put back, SLURM status is: '{PREEMPTED}'."
                    log = job.aux.get("slurm_logfile")
                    executor.report_job_error(job, msg=told, aux_logs=[str(log)] if log else [])
                else:
                    accounted.add(id(job))
                    yield job
        finally:
            del executor.report_job_success, executor.report_job_error  # the class's own again
        preempted.clear()
        preempted.update(name for name, state in states.items() if state == PREEMPTED)
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
