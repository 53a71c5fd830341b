"""What is said of failed jobs, from the captured text of a real run on Slurm 22.05 in which they ended in each way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradsync import cli
from gradsync.slurm import states

CAPTURED = Path(__file__).parent / "captured"
RUN = (CAPTURED / "run.txt").read_text()


def read(log: str) -> str:
    """`logs/own.log` lies in captured/logs-own.txt, .snakemake/slurm_logs/rule_own/6.log in captured/rule_own-6.txt."""
    name = log.partition("slurm_logs/")[2] or log
    file = CAPTURED / (name.removesuffix(".log").replace("/", "-") + ".txt")
    return file.read_text() if file.exists() else ""


def causes(text: str) -> dict[str, str]:
    return {ending.job: ending.cause for ending in states.endings(text, read)}


def test_each_way_to_end_is_told_apart():
    assert causes(RUN) == {
        "impossible": "refused",
        "node": "node failure",
        "sleeper job=cancelled": "cancelled",
        "own": "own failure",
        "memory": "memory",
        "ranks": "own failure",
        "sleeper job=slow": "time limit",
    }


def test_lines_name_the_slurm_job_the_log_and_what_to_change():
    lines = {ending.job: str(ending) for ending in states.endings(RUN, read)}
    profile = "workflow/profiles/slurm/config.yaml"
    assert lines["sleeper job=slow"] == (
        f"sleeper job=slow (Slurm 4, TIMEOUT): time limit; raise `runtime` (minutes) in {profile}; log: logs/slow.log"
    )
    # its own log is empty: Slurm's is named
    assert lines["memory"] == (
        f"memory (Slurm 5, FAILED): memory; raise `mem_mb` (MB a node) in {profile};"
        " log: /home/user/gradsync/.snakemake/slurm_logs/rule_memory/5.log"
    )
    assert "own failure: rank 1: no such gradient" in lines["ranks"]
    assert "refused: Memory specification can not be satisfied" in lines["impossible"]


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("OUT_OF_MEMORY", "memory"),
        ("DEADLINE", "time limit"),
        ("BOOT_FAIL", "node failure"),
        ("PREEMPTED", "preempted"),
        ("FAILED", "own failure"),
    ],
)
def test_states_of_other_clusters(state, cause):
    changed = RUN.replace(
        "SLURM-job '6' failed, SLURM status is: 'FAILED'", f"SLURM-job '6' failed, SLURM status is: '{state}'"
    )
    assert changed.count(state) > RUN.count(state) or state == "FAILED"
    assert causes(changed)["own"] == cause


def test_a_cgroup_kill_of_a_step_is_memory():
    """The words are those in slurmstepd's program; a job that goes on after its step was killed is FAILED."""
    line = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=6.0. Some of your processes may have been killed"
    endings = states.endings(RUN, lambda log: line if log.endswith("rule_own/6.log") else "")
    assert {ending.job: ending.cause for ending in endings}["own"] == "memory"


def test_a_program_that_only_speaks_of_memory_has_failed_by_itself():
    endings = states.endings(RUN, lambda log: "RuntimeError: CUDA out of memory" if log == "logs/own.log" else "")
    ending_of_own = next(ending for ending in endings if ending.job == "own")
    assert (ending_of_own.cause, ending_of_own.words) == ("own failure", "RuntimeError: CUDA out of memory")


def test_a_job_that_went_well_when_tried_again_did_not_fail():
    block = re.search(r"^Error in rule own:\n(?: {4}.*\n)+", RUN, re.MULTILINE).group()
    again = RUN.replace(block, f"{block}Trying to restart job 6.\n")
    assert "own" not in causes(
        again + "[Sat Nov 21 15:20:00 2026]\nFinished jobid: 6 (Rule: own)\n1 of 8 steps (12%) done\n"
    )
    assert list(causes(again + block)).count("own") == 1
    assert "own" in causes(again + "Finished jobid: 61 (Rule: other)\n")


def test_no_failure_and_no_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["slurm", "why"]) == 2
    assert cli.main(["slurm", "why", "away.log"]) == 2
    assert capsys.readouterr().err.count("give ") >= 2
    (tmp_path / ".snakemake" / "log").mkdir(parents=True)
    (tmp_path / ".snakemake" / "log" / "2026-11-21T150000.1.snakemake.log").write_text(RUN)
    (tmp_path / ".snakemake" / "log" / "2026-11-21T160000.1.snakemake.log").write_text("Nothing to be done.\n")
    assert cli.main(["slurm", "why"]) == 0
    assert capsys.readouterr().out == "No job failed.\n"
