"""What ended a job, from the messages of Snakemake's Slurm executor and what Slurm wrote into the job's log.

Slurm's state comes from the executor ("SLURM status is: 'TIMEOUT'"; states: squeue(1), "JOB STATE CODES"). It is not
always the cause: if memory is sampled and not limited by a cgroup, a job killed for memory is FAILED, and only
slurmstepd's line in its log says why. If the program itself failed, its own last words are shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gradsync.errors import InputError
from gradsync.slurm.launch import PROFILE
from gradsync.slurm.run_log import Failure, failures

TAIL_BYTES = 100_000  # of a job's log: what ended it is at its end

STATES = {
    "TIMEOUT": "time limit",
    "DEADLINE": "time limit",
    "OUT_OF_MEMORY": "memory",
    "NODE_FAIL": "node failure",
    "BOOT_FAIL": "node failure",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
}
ADVICE = {
    "time limit": f"raise `runtime` (minutes) in {PROFILE}",
    "memory": f"raise `mem_mb` (MB a node) in {PROFILE}",
    "node failure": f"run again; a node that fails again: `sbatch_extra: --exclude=NODE` in {PROFILE}",
    "cancelled": "somebody cancelled it (scancel, or this run when it was interrupted)",
    "preempted": f"run again, or set a `slurm_partition` that is not preempted in {PROFILE}",
    "own failure": "the program failed by itself, its log says why",
    "refused": f"change what it asks for in {PROFILE} (`gradsync slurm check` tells what the cluster has)",
}
# Signs of a cause in a job's log: cgroups write "oom-kill", sampling "exceeded memory limit".
SIGNS = {
    "memory": re.compile(r"slurmstepd.*(?:exceeded (?:job )?memory limit|oom[-_ ]?kill|out.of.memory)", re.IGNORECASE),
    "time limit": re.compile(r"\*\*\* (?:JOB|STEP) .* DUE TO TIME LIMIT"),
    "node failure": re.compile(
        r"\*\*\* (?:JOB|STEP) .* DUE TO NODE FAILURE|^srun: error: Node failure on", re.MULTILINE
    ),
    "preempted": re.compile(r"\*\*\* (?:JOB|STEP) .* DUE TO PREEMPTION"),
}
# Lines of Slurm and of Snakemake around the program's own words.
FRAME = re.compile(
    r"srun: |slurm(?:stepd|d)\S*: |\s|\[?\w{3} \w{3} +\d+ |(?:local)?rule \w+:|host: |Exiting because|WorkflowError"
    r"|At least one|Error in rule|RuleException|Shutting down|Complete log|Full Traceback|Elapsed time|Removing output"
    r"|Storing output|Finished job|CalledProcessError|Command |Trying to restart|\d+ of \d+ steps|Select jobs|Execute "
)


@dataclass(frozen=True)
class Ending:
    """Why one job failed; `log` is the log to look into."""

    job: str
    slurm_id: str
    state: str
    cause: str
    words: str
    advice: str
    log: str

    def as_row(self) -> dict[str, str]:
        """The fields by name, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        slurm = f" (Slurm {self.slurm_id}, {self.state})" if self.slurm_id and self.state else ""
        words = f": {self.words}" if self.words else ""
        return f"{self.job}{slurm}: {self.cause}{words}; {self.advice}{'; log: ' + self.log if self.log else ''}"


def endings(text: str, read: Callable[[str], str]) -> list[Ending]:
    """The endings of the jobs that failed in Snakemake's log `text`; `read` gives the text of a job's log or ""."""
    return [_ending(failure, read) for failure in failures(text)]


def report(failed: list[Ending]) -> str:
    """A line per failed job, and what to do then."""
    if not failed:
        return "No job failed."
    again = "The same command again runs only what is missing; training goes on from its last checkpoint."
    return "\n".join([*map(str, failed), f"{len(failed)} job(s) failed. {again}"])


def log_text(path: str) -> str:
    """The end of a log; "" if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def newest(folder: Path) -> Path:
    """The log of the latest run of Snakemake. Raises InputError if there is none."""
    logs = sorted(folder.glob("*.snakemake.log"))  # named by date and time
    if not logs:
        raise InputError(f"{folder} holds no log of Snakemake: run in its working directory, or give the log")
    return logs[-1]


def _ending(failure: Failure, read: Callable[[str], str]) -> Ending:
    own_log = read(failure.log) if failure.log else ""
    slurm_log = read(failure.slurm_log) if failure.slurm_log else ""
    cause = "refused" if failure.refused else _cause(failure.state, own_log + slurm_log)
    words = failure.refused or (_words(own_log, slurm_log) if cause == "own failure" else "")
    return Ending(
        job=failure.job,
        slurm_id=failure.slurm_id,
        state=failure.state,
        cause=cause,
        words=words,
        advice=ADVICE[cause],
        log=failure.log if own_log or not slurm_log else failure.slurm_log,
    )


def _cause(state: str, log: str) -> str:
    """The cause by Slurm's state; if that says no more than FAILED or CANCELLED, by the log."""
    if STATES.get(state, "cancelled") == "cancelled":
        for cause, sign in SIGNS.items():
            if sign.search(log):
                return cause
    return STATES.get(state, "own failure")


def _words(own_log: str, slurm_log: str) -> str:
    """The last line of the program's own log, else how it ended; at most 200 characters."""
    lines = [line.strip() for line in own_log.splitlines() if line.strip() and not FRAME.match(line)]
    if lines:
        return lines[-1][:200]
    ended = re.findall(r"returned non-zero (exit status \d+)|died with (<Signals[^>]*>)", slurm_log)
    return f"{''.join(ended[-1])}, and its own log is empty" if ended else ""
