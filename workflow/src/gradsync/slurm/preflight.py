"""Asks a cluster, before any job is submitted, whether the jobs can run at all (sinfo(1), sbatch(1)).

Every question has a time limit: a controller that is away must not make a run hang.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gradsync.errors import InputError
from gradsync.slurm import offers
from gradsync.slurm.launch import PROFILE
from gradsync.slurm.offers import Node, Partition

CLIENTS = ("sinfo", "scontrol", "sbatch", "squeue", "srun", "scancel")
ANSWER_SECONDS = 30
# The profile looks every 10 s whether jobs have ended, and waits for ever for one that squeue has forgotten.
LEAST_JOB_AGE_SECONDS = 60


@dataclass(frozen=True)
class NodeCounts:
    """Numbers of nodes of the partition that a job would run in: all, those that are up, those that fit."""

    partition: str
    nodes: int
    up: int
    fitting: int


@dataclass(frozen=True)
class Demand:
    """What the largest job needs; CPUs, GPUs and memory in MB are those of a node."""

    nodes: int = 1
    cpus: int = 1
    gpus: int = 0
    memory: int = 0
    minutes: int = 0

    def __str__(self) -> str:
        memory = f" and {self.memory} MB" if self.memory else ""
        return f"{self.nodes} node(s) with {self.gpus} GPUs, {self.cpus} CPUs{memory} each"


def check(
    partition: str | None = None,
    account: str | None = None,
    nodes: int = 1,
    cpus: int = 1,
    gpus_per_node: int = 0,
    memory: int = 0,
    minutes: int = 0,
    status_command: str = "squeue",
    extra: str = "",
) -> NodeCounts:
    """Check that a job of `nodes` nodes with so many CPUs, GPUs and MB each, for so many minutes, can ever run.

    `extra` are further arguments of sbatch that jobs are submitted with, as a shell would read them.

    Raises InputError, with what to change in the profile, if there is no Slurm, its controller doesn't answer in 30 s,
    there is no such partition or account, nodes or GPUs are too few, no GPUs are configured, or the time is too long.
    """
    missing = [name for name in CLIENTS if not shutil.which(name)]
    if missing:
        raise InputError(
            f"no Slurm here: {', '.join(missing)} not on the PATH. Run this on a login node of the cluster, or try a"
            " Slurm on this machine (`gradsync slurm start`), or leave out `--profile slurm`"
        )
    demand = Demand(nodes, cpus, gpus_per_node, memory, minutes)
    keeps_finished_jobs(_ask("scontrol", "show", "config"), status_command)
    offered = choose(offers.read_partitions(_ask("scontrol", "show", "partition", "--oneliner")), partition)
    limits(offered, demand)
    listed = _ask("sinfo", "--noheader", "--Node", f"--partition={offered.name}", f"--format={offers.NODE_FORMAT}")
    counts = fit(offers.read_nodes(listed), demand, offered.name)
    _would_be_taken(demand, offered.name, account, extra)
    return counts


def keeps_finished_jobs(config: str, status_command: str) -> None:
    """Raises InputError if the status query would hang or forget jobs; `scontrol show config` prints `config`."""
    age = offers.setting(config, "MinJobAge")
    stored = not offers.setting(config, "AccountingStorageType").endswith("none")
    if status_command == "sacct" and not stored:
        raise InputError(
            "this cluster stores no accounting, and asking sacct makes the run hang:"
            f" set `slurm-status-command: squeue` in {PROFILE}"
        )
    if status_command == "squeue" and age.isdecimal() and 0 < int(age) < LEAST_JOB_AGE_SECONDS:
        instead = (
            f"set `slurm-status-command: sacct` in {PROFILE}"
            if stored
            else f"ask its administrator for MinJobAge of {LEAST_JOB_AGE_SECONDS} or more (Slurm's default is 300)"
        )
        raise InputError(
            f"this cluster's squeue forgets a job {age} s after its end (MinJobAge): a run that has not"
            f" looked by then would wait for ever; {instead}"
        )


def choose(partitions: list[Partition], name: str | None) -> Partition:
    """The partition of that name, or the default one. Raises InputError that lists the partitions if there is none."""
    chosen = next((entry for entry in partitions if (entry.name == name if name else entry.default)), None)
    if chosen and chosen.state == "UP":
        return chosen
    what = (
        f"partition {name} is {chosen.state}"
        if chosen
        else f"no partition {name!r}"
        if name
        else "no default partition"
    )
    names = ", ".join(sorted(entry.name for entry in partitions)) or "none"
    raise InputError(f"this cluster: {what}; partitions: {names}. Set `slurm_partition` in {PROFILE}")


def limits(partition: Partition, demand: Demand) -> None:
    """Raises InputError if the job asks for more time or nodes than the partition allows."""
    if partition.minutes is not None and demand.minutes > partition.minutes:
        raise InputError(
            f"partition {partition.name} allows {partition.minutes} minutes and a job asks for {demand.minutes}: lower"
            f" `runtime` (training goes on from its checkpoint when it is run again) or set another `slurm_partition`"
            f" in {PROFILE}"
        )
    if partition.most_nodes is not None and demand.nodes > partition.most_nodes:
        raise InputError(
            f"partition {partition.name} allows {partition.most_nodes} nodes per job and one asks for {demand.nodes}:"
            f" raise `ranks_per_node` or set another `slurm_partition` in {PROFILE}, or train with fewer ranks"
        )


def fit(nodes: list[Node], demand: Demand, partition: str) -> NodeCounts:
    """Count the nodes that fit. Raises InputError, with what they have, if they are too few."""
    up = [node for node in nodes if node.up]
    sieve = {
        f"{demand.gpus} GPUs (`gpus_per_node`)": [node for node in up if node.gpus >= demand.gpus],
        f"{demand.cpus} CPUs (`ranks_per_node` x `cpus_per_rank`)": [node for node in up if node.cpus >= demand.cpus],
        f"{demand.memory} MB (`mem_mb`)": [node for node in up if node.memory >= demand.memory],
    }
    fitting = [node for node in up if all(node in kept for kept in sieve.values())]
    if len(fitting) >= demand.nodes:
        return NodeCounts(partition, len(nodes), len(up), len(fitting))
    supply = f"partition {partition} has {len(nodes)} node(s), {len(up)} of them up"
    if demand.gpus and up and not any(node.gpus for node in up):
        raise InputError(
            f"{supply}, and none has GPUs configured in Slurm (GRES gpu): set `gpus_per_node: 0` or another"
            f" `slurm_partition` in {PROFILE}"
        )
    short = ", ".join(
        f"{len(kept)} with {what}" for what, kept in sieve.items() if len(kept) < min(len(up), demand.nodes)
    )
    best = max(up, key=lambda node: (node.gpus, node.cpus, node.memory), default=None)
    if short and best:
        short = f": {short}; the largest has {best.gpus} GPUs, {best.cpus} CPUs and {best.memory} MB"
    raise InputError(
        f"a job needs {demand}, and {supply}{short}. Change these settings or `slurm_partition` in {PROFILE}, or train"
        " with fewer ranks"
    )


def _would_be_taken(demand: Demand, partition: str, account: str | None, extra: str) -> None:
    """Ask the controller itself: it knows accounts and limits that nothing else shows."""
    command = ["--test-only", f"--partition={partition}", f"--nodes={demand.nodes}", "--wrap=true"]
    command += ["--ntasks-per-node=1", f"--cpus-per-task={demand.cpus}"]
    command += [f"--gpus-per-node={demand.gpus}"] if demand.gpus else []
    command += [f"--account={account}"] if account else []
    command += [f"--mem={demand.memory}"] if demand.memory else []
    command += [f"--time={demand.minutes}"] if demand.minutes else []
    done = _run("sbatch", *command, *shlex.split(extra))
    if done.returncode:
        complaint = re.sub(r"(?:^|\n)(?:sbatch: |error: |allocation failure: )+", " ", done.stderr).strip()
        who = f" for account {account}" if account else ""
        raise InputError(
            f"Slurm would not take a job of {demand} in partition {partition}{who}: {complaint}. Change"
            f" `slurm_account`, `slurm_partition`, `runtime`, `mem_mb` or `sbatch_extra` in {PROFILE}"
        )


def _ask(*command: str) -> str:
    configuration = os.environ.get("SLURM_CONF", "")
    if configuration and not Path(configuration).is_file():
        raise InputError(f"SLURM_CONF is {configuration}, which does not exist: set it to the cluster's slurm.conf")
    done = _run(*command)
    if not done.returncode:
        return done.stdout
    complaint = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
    if "configuration source" in complaint:
        raise InputError(
            "Slurm's clients find no configuration: set SLURM_CONF to the cluster's slurm.conf, or start a Slurm on"
            " this machine (`gradsync slurm start`)"
        )
    where = f"; SLURM_CONF is {configuration}" if configuration else ""
    raise InputError(
        f"Slurm's controller does not answer ({' '.join(command[:2])}: {complaint}): `scontrol ping` tells which it"
        f" is{where}. Try again when it is back"
    )


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"Slurm's controller does not answer within {ANSWER_SECONDS} s (`{' '.join(command[:2])}`): `scontrol ping`"
            " tells which it is. Try again when it is back"
        ) from None
