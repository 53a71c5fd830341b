"""Slurm's controller goes away and comes back while Snakemake waits for a job: the run ends, and well."""

from __future__ import annotations

import os
import signal
import subprocess

from slurm_here import needs_slurm

from gradsync.slurm import installed
from waiting import HANGS_SECONDS, until

pytestmark = needs_slurm

SNAKEFILE = """\
from gradsync.slurm import patience

patience.install()
patience.install()

rule all:
    input: "done.txt"
    localrule: True

rule job:
    output: "done.txt"
    resources: mem_mb=500
    shell: "touch begun; until test -e back; do sleep 0.2; done; touch {output}"
"""


def test_a_run_survives_a_controller_that_is_away(slurm, tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    looks = ["--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"]
    run = slurm.snakemake(tmp_path, "--executor", "slurm", "--jobs", "2", "--slurm-status-command", "squeue", *looks)
    controller = None
    try:
        log = tmp_path / "run.log"
        # of a job that is only just starting Slurm itself may take minutes to hear again
        until((tmp_path / "begun").exists)
        os.kill(slurm.process("slurmctld").pid, signal.SIGTERM)
        until(lambda: "they are looked for again" in log.read_text())
        command = [installed.program("slurmctld"), "-D", "-f", slurm.environment["SLURM_CONF"]]
        controller = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=slurm.environment
        )
        answers = ["scontrol", "ping"]
        until(lambda: subprocess.run(answers, stdout=subprocess.DEVNULL, env=slurm.environment).returncode == 0)
        (tmp_path / "back").touch()
        assert run.wait(HANGS_SECONDS) == 0, log.read_text()
        assert (tmp_path / "done.txt").exists()
    finally:
        run.kill()
        if controller:
            controller.terminate()
            controller.wait(HANGS_SECONDS)
