"""Jobs that really end in each of the ways, under Snakemake with this project's profile: what is said of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_here import ROOT, Slurm, needs_slurm

from waiting import HANGS_SECONDS, until

pytestmark = needs_slurm

INSTALLED = "from gradsync.slurm import patience\n\npatience.install()\n\n"
ENDINGS = """\
rule all:
    input:
        expand("{job}.txt", job=["cancelled", "slow", "memory", "ranks", "node", "own", "impossible"]),
    localrule: True

rule sleeper:
    output: "{job,cancelled|slow}.txt"
    log: "logs/{job}.log"
    resources: slurm_extra="--exclude=n4", mem_mb=600
    shell: "echo step 17 > {log}; sleep 600; touch {output}"

rule node:
    output: "node.txt"
    resources: slurm_extra="--nodelist=n4", mem_mb=600
    shell: "sleep 600; touch {output}"

rule memory:
    output: "memory.txt"
    log: "logs/memory.log"
    resources: slurm_extra="--exclude=n4", mem_mb=400
    shell: "python -c 'x = bytearray(900 * 2**20); import time; time.sleep(600)' 2> {log}; touch {output}"

rule ranks:
    output: "ranks.txt"
    log: "logs/ranks.log"
    resources: mpi="srun", tasks=2, nodes=2, slurm_extra="--exclude=n4 --ntasks-per-node=1", mem_mb=400
    shell:
        "srun --nodes=2 --ntasks=2 --kill-on-bad-exit=1 python rank.py > {log} 2>&1"

rule own:
    output: "own.txt"
    log: "logs/own.log"
    resources: slurm_extra="--exclude=n4", mem_mb=600
    shell: "echo step 17 > {log}; echo ValueError: no such model >> {log}; exit 3"

rule impossible:
    output: "impossible.txt"
    resources: mem_mb=400000
    shell: "touch {output}"
"""
RANK = """\
import os, time

if os.environ["SLURM_PROCID"] == "1":
    exit("rank 1: no such gradient")
time.sleep(600)
"""
SETTINGS = """\
rule all:
    input: "ranks.txt", "alone.txt"
    localrule: True

rule ranks:
    output: "ranks.txt"
    threads: 2
    resources: mpi="srun", tasks=4, nodes=2, slurm_extra="--ntasks-per-node=2 --gpus-per-node=2", mem_mb=500
    shell: "srun --nodes={resources.nodes} --ntasks={resources.tasks} --cpus-per-task={threads} sh task > {output}"

rule alone:
    output: "alone.txt"
    resources: mpi="", tasks=1, nodes=1, interface="ib0", mem_mb=500
    shell:
        "echo run >> runs; test $(wc -l < runs) = 2; env > environment;"
        " echo '{resources.interface}|{resources.hca}|{resources.srun_extra}|{resources.ranks_per_node}' > {output}"
"""
CAUSES = {
    "sleeper job=cancelled": "cancelled",
    "sleeper job=slow": "time limit",
    "memory": "memory",
    "node": "node failure",
    "ranks": "own failure",
    "own": "own failure",
    "impossible": "refused",
}


def profiled(*arguments: str) -> list[str]:
    """With the profile, its configuration file replaced by none of ours; a status query a second after submission."""
    return [
        *(
            "--profile",
            str(ROOT / "slurm"),
            "--configfile",
            "empty.yaml",
            "--slurm-init-seconds-before-status-checks",
            "1",
        ),
        *("--seconds-between-status-checks", "1", "--latency-wait", "10", *arguments),
    ]


def why(slurm: Slurm, folder: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "gradsync", "slurm", "why", *arguments],
        cwd=folder,
        env=slurm.environment,
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def ended(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in which one job ended in each of the ways."""
    folder = tmp_path_factory.mktemp("endings")
    (folder / "Snakefile").write_text(INSTALLED + ENDINGS)
    (folder / "rank.py").write_text(RANK)
    (folder / "empty.yaml").write_text("{}\n")
    run = slurm.snakemake(folder, *profiled("--retries", "0", "--slurm-no-requeue"))
    try:
        jobs: dict[str, str] = {}

        def running() -> bool:
            listed = (line.split() for line in slurm.ask("squeue", "-h", "-t", "running", "-o", "%k %i").splitlines())
            jobs.update((comment, number) for comment, number in listed)
            return {"rule_sleeper_wildcards_cancelled", "rule_sleeper_wildcards_slow", "rule_node"} <= set(jobs)

        until(running)
        until((folder / "logs" / "slow.log").exists)  # its program runs
        slurm.ask("scancel", jobs["rule_sleeper_wildcards_cancelled"])
        # Slurm's finest limit is a minute, but an end can be set; it looks for those that passed theirs every 30 s.
        slurm.ask("scontrol", "update", f"jobid={jobs['rule_sleeper_wildcards_slow']}", "EndTime=now+1seconds")
        os.kill(slurm.process("n4").pid, signal.SIGKILL)
        slurm.ask(
            "scontrol", "update", "nodename=n4", "state=down", "reason=killed"
        )  # instead of its silence being noticed
        assert run.wait(HANGS_SECONDS) == 1
    finally:
        run.kill()
    return folder


def test_each_ending_is_told_apart_and_says_what_to_change(slurm, ended):
    failed = {row["job"]: row for row in json.loads(why(slurm, ended, "--json"))["failed"]}
    assert {job: row["cause"] for job, row in failed.items()} == CAUSES
    assert failed["own"]["words"] == "ValueError: no such model"
    assert failed["ranks"]["words"] == "rank 1: no such gradient"
    assert "`runtime`" in failed["sleeper job=slow"]["advice"]
    assert "`mem_mb`" in failed["memory"]["advice"]
    assert "Memory specification can not be satisfied" in failed["impossible"]["words"]
    assert failed["sleeper job=slow"]["state"] == "TIMEOUT"
    assert failed["node"]["state"] == "NODE_FAIL"


def test_one_line_a_job_with_its_log_and_that_the_same_command_goes_on(slurm, ended):
    *lines, last = why(slurm, ended).splitlines()
    assert len(lines) == len(CAUSES)
    line_of_own = next(line for line in lines if line.startswith("own "))
    assert re.fullmatch(
        r"own \(Slurm \d+, FAILED\): own failure: ValueError: no such model; .*; log: logs/own.log", line_of_own
    )
    assert "The same command again" in last
    assert "checkpoint" in last


def test_the_settings_of_the_profile_reach_jobs_and_a_failed_job_runs_twice(slurm, tmp_path):
    """On the node, too; a rule may have its own; sbatch and srun get nodes, tasks and GPUs."""
    (tmp_path / "empty.yaml").write_text("{}\n")
    (tmp_path / "Snakefile").write_text(INSTALLED + SETTINGS)
    (tmp_path / "task").write_text("echo $SLURM_PROCID $SLURMD_NODENAME $SLURM_CPUS_PER_TASK $SLURM_GPUS_ON_NODE\n")
    chosen = ["--set-resources", "alone:hca=mlx5_0,mlx5_1", "alone:srun_extra=--mpi=none --cpu-bind=cores"]
    run = slurm.snakemake(tmp_path, *profiled(*chosen))
    try:
        assert run.wait(HANGS_SECONDS) == 0, (tmp_path / "run.log").read_text()
    finally:
        run.kill()
    ranks = [line.split() for line in (tmp_path / "ranks.txt").read_text().splitlines()]
    assert sorted((rank, cpus, gpus) for rank, _, cpus, gpus in ranks) == [(str(n), "2", "2") for n in range(4)]
    assert len({node for _, node, *_ in ranks}) == 2
    assert (tmp_path / "alone.txt").read_text() == "ib0|mlx5_0,mlx5_1|--mpi=none --cpu-bind=cores|1\n"
    assert (tmp_path / "runs").read_text() == "run\nrun\n"  # retries: 1
    assert "SLURM_STEP_ID" not in (tmp_path / "environment").read_text()  # not a task of a step
    assert why(slurm, tmp_path) == "No job failed.\n"
