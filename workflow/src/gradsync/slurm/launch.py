"""How ranks are started on a cluster: what a job asks Slurm for, and the srun that starts one rank per task.

The settings are the `default-resources` of workflow/profiles/slurm/config.yaml, so that all of them are in one place.
A job's own process runs on the first node of its allocation. It starts the ranks with the command that it reads from
GRADSYNC_LAUNCH, and not on its own machine.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields

from gradsync.errors import InputError

LAUNCH = "GRADSYNC_LAUNCH"  # a command; {ranks}, {nodes} and {together} (ranks of a node) stand for numbers
RANKS_A_NODE = "GRADSYNC_RANKS_PER_NODE"
LAST_SECONDS = 20  # that a rank may go on once the first one has ended: they leave their group together
PROFILE = "workflow/profiles/slurm/config.yaml"
PLUGIN = "snakemake_executor_plugin_slurm"


@dataclass(frozen=True)
class Cluster:
    """The settings of the profile that concern ranks."""

    ranks_per_node: int = 1
    cpus_per_rank: int = 1
    gpus_per_node: int = 0
    interface: str = ""
    hca: str = ""
    cpu_bind: str = ""
    gpu_bind: str = ""
    srun_extra: str = ""
    sbatch_extra: str = ""
    slurm_partition: str = ""
    slurm_account: str = ""

    @classmethod
    def read(cls, resources: Sequence[str] | None) -> Cluster | None:
        """Read `KEY=VALUE` entries, as Snakemake holds default resources; None if ours are missing: it is no profile.

        Raises InputError that names the key.
        """
        entries = dict(entry.split("=", 1) for entry in resources or () if "=" in entry)
        if "ranks_per_node" not in entries:
            return None
        values: dict[str, int | str] = {}
        for field in fields(cls):
            if field.name not in entries:
                continue
            text = entries[field.name].strip("'\"")
            if field.type == "str":
                values[field.name] = "" if text == "None" else text
            elif text.isdecimal() and int(text) >= (field.name != "gpus_per_node"):
                values[field.name] = int(text)
            else:
                least = 0 if field.name == "gpus_per_node" else 1
                raise InputError(f"{PROFILE}: default-resources: {field.name}={text}: a number, at least {least}")
        cluster = cls(**values)  # type: ignore[arg-type]
        _refuse_managed(cluster.sbatch_extra)
        if 0 < cluster.gpus_per_node < cluster.ranks_per_node:
            raise InputError(
                f"{PROFILE}: default-resources: ranks_per_node={cluster.ranks_per_node} is more than gpus_per_node="
                f"{cluster.gpus_per_node}: a rank takes a GPU"
            )
        return cluster

    def nodes(self, ranks: int) -> int:
        """The number of nodes that hold `ranks` ranks."""
        return -(-ranks // self.ranks_per_node)

    def gpus(self, ranks: int) -> int:
        """GPUs that a job of `ranks` ranks takes on each of its nodes."""
        return min(self.gpus_per_node, ranks, self.ranks_per_node)

    def sbatch(self, ranks: int) -> str:
        """Arguments of sbatch besides nodes, tasks, memory and time."""
        options = [f"--ntasks-per-node={min(ranks, self.ranks_per_node)}"] if ranks > 1 else []
        options += [f"--gpus-per-node={self.gpus(ranks)}"] if self.gpus(ranks) else []
        return " ".join([*options, *([self.sbatch_extra] if self.sbatch_extra else [])])

    def environment(self) -> dict[str, str]:
        """Variables that say which network Gloo and NCCL take."""
        names = {
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
            "NCCL_IB_HCA": self.hca,
        }
        return {name: value for name, value in names.items() if value}

    def srun(self, image: str | None = None, apptainer: str = "") -> str:
        """The command in front of a rank's own, its numbers still open; `apptainer`: arguments of `apptainer exec`.

        Ranks of a node have consecutive numbers, as topologies have them. The command names no GPUs: a step has all
        those of its job.
        """
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        command = [*(["env", *variables] if variables else []), "srun", "--nodes={nodes}", "--ntasks={ranks}"]
        command += ["--ntasks-per-node={together}", "--distribution=block"]
        command += ["--kill-on-bad-exit=1", f"--wait={LAST_SECONDS}", f"--cpus-per-task={self.cpus_per_rank}"]
        command += [f"--cpu-bind={self.cpu_bind}"] if self.cpu_bind else []
        command += [f"--gpu-bind={self.gpu_bind}"] if self.gpu_bind else []
        command += shlex.split(self.srun_extra)
        if image:
            command += ["apptainer", "exec", *shlex.split(apptainer), image]
        return shlex.join(command)

    def started(self, ranks: int, image: str | None = None, apptainer: str = "") -> str:
        """Shell code in front of a command that each of `ranks` ranks runs itself."""
        return shlex.join(filled(self.srun(image, apptainer), ranks, self.ranks_per_node)) + " "

    def exported(self, image: str | None = None, apptainer: str = "") -> str:
        """Shell code in front of `python -m gradsync ...` of a job with several ranks."""
        variables = {LAUNCH: self.srun(image, apptainer), RANKS_A_NODE: str(self.ranks_per_node)}
        return f"export {' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}; "


def ranks_a_node() -> int | None:
    """How many ranks the command that starts them puts on a node; None if they are started on this machine."""
    return int(os.environ.get(RANKS_A_NODE, "1")) if os.environ.get(LAUNCH) else None


def filled(command: str, ranks: int, ranks_per_node: int) -> list[str]:
    """The words of `command` for `ranks` ranks. Numbers alone are filled in: other braces belong to the command."""
    nodes, together = -(-ranks // ranks_per_node), min(ranks, ranks_per_node)
    numbers = {"{ranks}": str(ranks), "{nodes}": str(nodes), "{together}": str(together)}
    words = shlex.split(command)
    for open_, number in numbers.items():
        words = [word.replace(open_, number) for word in words]
    return words


def _refuse_managed(sbatch_extra: str) -> None:
    """Raises InputError for what Snakemake's executor sets itself: it would refuse each job when it is submitted."""
    if not sbatch_extra or importlib.util.find_spec(PLUGIN) is None:  # the workflow alone brings the executor
        return
    validation = importlib.import_module(f"{PLUGIN}.validation")
    for pattern, what in validation.get_forbidden_slurm_options().items():
        if found := re.search(pattern, sbatch_extra):
            raise InputError(
                f"{PROFILE}: default-resources: sbatch_extra: {found[0].strip(' =')} is refused there, since "
                f"Snakemake's executor sets the {what} itself: give its resource beside sbatch_extra (constraint, qos, "
                "runtime, mem_mb, slurm_partition, slurm_account, ..)"
            )
