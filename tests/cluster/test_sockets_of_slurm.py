"""What a local Slurm, its clients and ranks in its steps listen at: loopback alone."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from slurm_here import needs_slurm

from gradsync.slurm import machine
from sockets import listeners
from waiting import until

pytestmark = [
    needs_slurm,
    pytest.mark.skipif(
        not machine.is_loopback(machine.address()),
        reason=f"Slurm listens where this host's name leads: let /etc/hosts say `127.0.0.1 {socket.gethostname()}`",
    ),
]


def test_daemons_clients_and_ranks_listen_on_loopback_only(slurm, tmp_path):
    measured = [sys.executable, "-m", "gradsync", "measure", "allreduce", "--ranks", "2", "--largest", "4096"]
    step = ["srun", "--nodes=2", "--ntasks=2", *measured, "--output", str(tmp_path / "times.csv")]
    seen = set()
    with subprocess.Popen(step, env=slurm.environment, stdout=subprocess.DEVNULL) as started:

        def ended() -> bool:
            seen.update(listeners(slurm.folder))
            return started.poll() is not None

        try:
            until(ended)
        finally:
            started.kill()
    assert started.returncode == 0
    daemons = [each for each in seen if each.process in ("slurmctld", "slurmd")]
    assert len({each.pid for each in daemons}) == 1 + 4
    assert {each.process for each in seen} > {"slurmctld", "slurmd", "srun"}  # and the ranks
    assert {each for each in seen if not each.loopback} == set()
