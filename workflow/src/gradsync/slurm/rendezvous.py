"""A rank's place, from the variables that Slurm gives the tasks of a step (srun(1), "OUTPUT ENVIRONMENT VARIABLES").

Ranks find each other by torchrun's variables everywhere; under srun they are made from Slurm's, one rank per task.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import MutableMapping

from gradsync.errors import InputError

# Ports below those that systems hand out to clients (32768 and up) and those of a local Slurm (20000 and up).
FIRST_PORT = 10240
STEPS = 16
JOBS = 600
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # where ranks listen for each other


def is_task(environment: MutableMapping[str, str] = os.environ) -> bool:
    """True in a task of a step with several tasks.

    A batch script has SLURM_PROCID and SLURM_NTASKS too, and Snakemake runs its ordinary jobs in steps of one task.
    """
    try:
        return "SLURM_STEP_ID" in environment and int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1
    except ValueError:
        return False


def adopt(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set torchrun's variables from Slurm's if this is a task and no launcher has set them; mutates `environment`.

    Threads are the task's share of the processors. Raises InputError if Slurm's variables make no sense.
    """
    if "RANK" in environment or not is_task(environment):
        return
    try:
        rank, job, step = (int(environment[name]) for name in ("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"))
        nodes = environment["SLURM_STEP_NODELIST"]
        environment["LOCAL_RANK"] = environment["SLURM_LOCALID"]
    except (KeyError, ValueError) as error:
        raise InputError(f"Slurm step: {error}: start the ranks with srun, one rank per task") from None
    environment["RANK"] = str(rank)
    environment["WORLD_SIZE"] = environment["SLURM_STEP_NUM_TASKS"]
    alone = environment.get("SLURM_STEP_NUM_NODES") == "1"  # no rank comes from another node
    environment.setdefault("MASTER_ADDR", "127.0.0.1" if alone else _address(first_node(nodes), environment))
    environment.setdefault("MASTER_PORT", str(port(job, step)))
    share = environment.get("SLURM_CPUS_PER_TASK", "1")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = share
    if environment["MASTER_ADDR"].startswith("127."):
        for name in INTERFACES:
            environment.setdefault(name, "lo")


def port(job: int, step: int) -> int:
    """The port at which rank 0 of a step listens: two steps that may run at once on a node have different ones."""
    return FIRST_PORT + job % JOBS * STEPS + step % STEPS


def first_node(nodes: str) -> str:
    """The first host name of a Slurm host list, which holds rank 0: `n[003-007,9],login` is `n003`.

    Raises InputError for a list that is none.
    """
    match = re.match(r"(?:[^\[\],\s]|\[\d[^\[\]]*\])+(?=,|$)", nodes)
    if not match:
        raise InputError(f"Slurm step: {nodes!r} is no list of nodes")
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", match.group())


def _address(node: str, environment: MutableMapping[str, str]) -> str:
    """The node's name if it resolves, else the address that the step was started at: in a batch job it is the same."""
    try:
        socket.getaddrinfo(node, None)
    except OSError:
        if "SLURM_LAUNCH_NODE_IPADDR" not in environment:
            raise InputError(f"Slurm step: {node} does not resolve: set MASTER_ADDR for all tasks") from None
        return environment["SLURM_LAUNCH_NODE_IPADDR"]
    return node
