"""A local Slurm, its clients and ranks in its steps listen at loopback alone, if the host's name resolves to it."""

from __future__ import annotations

import sys

from slurm_here import needs_slurm

from gradsync.slurm import local, machine
from sockets import while_it_runs

pytestmark = needs_slurm


def test_daemons_clients_and_ranks_listen_where_slurm_is_bound_and_nowhere_else(slurm, tmp_path):
    measured = [sys.executable, "-m", "gradsync", "measure", "allreduce", "--ranks", "2", "--largest", "4194304"]
    step = ["srun", "--nodes=2", "--ntasks=2", *measured, "--output", str(tmp_path / "times.csv")]
    sockets = while_it_runs(step, slurm.folder, slurm.environment)
    daemons = [each for each in sockets if each.process in ("slurmctld", "slurmd")]
    started = [process for process in local.status(slurm.folder).processes if process.name != "munged"]
    assert len(started) == 1 + 4
    assert {process.pid for process in started} <= {each.pid for each in daemons}  # a step that starts is a slurmd, too
    assert {each.process for each in sockets} > {"slurmctld", "slurmd", "srun"}  # and the ranks
    bound = machine.address() or "0.0.0.0"  # if it can't be bound, its start says so
    assert {each for each in sockets if not each.loopback and each.address != bound} == set()
