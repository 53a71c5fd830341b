"""The files of a local Slurm: its folder, slurm.conf, gres.conf and munge key (slurm.conf(5), gres.conf(5), munged(8)).

Several nodes share one host, each with a port of its own and the processors and memory that it is told to claim, which
need not exist (`config_overrides`). Job steps are found through /proc and their memory is sampled, since an ordinary
user has no cgroup of his own.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.slurm.installed import OWN_CLIENT
from gradsync.slurm.machine import LOOPBACK

# Slurm puts sockets named FOLDER/spool/NODE/NODE_JOB.STEP below the folder; a socket's path has 107 characters.
LONGEST_FOLDER = 70
# Snakemake's job step drops SLURM_CONF from the environment of what it runs, so its own `srun` would look for a
# configuration elsewhere: the folder's bin/ on the PATH has these clients with it.
CLIENTS = ("srun", "sbatch", "salloc", "scancel", "scontrol", "sinfo", "squeue", "sstat", "sacct")


@dataclass(frozen=True)
class Shape:
    """What the nodes claim: processors, GPUs and memory in MB of each node; seconds until a silent node is down."""

    nodes: int = 4
    cpus: int = 2
    gpus: int = 0
    memory: int = 1024
    silent_seconds: int = 60

    @property
    def names(self) -> list[str]:
        """The names of the nodes: n1, n2, ..."""
        return [f"n{number}" for number in range(1, self.nodes + 1)]


@dataclass(frozen=True)
class Folder:
    """The folder in which everything of one local Slurm lies."""

    path: Path

    @property
    def configuration(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.path / "slurm.conf"

    @property
    def clients(self) -> Path:
        """Slurm's clients that know their configuration; this folder comes first on the PATH."""
        return self.path / "bin"

    @property
    def processes(self) -> Path:
        """The record of the processes that were started."""
        return self.path / "processes.json"

    @property
    def lock(self) -> Path:
        """The lock that is held while it starts or stops."""
        return self.path / "lock"

    @property
    def key(self) -> Path:
        """The secret that daemons and clients share."""
        return self.path / "munge" / "key"

    @property
    def socket(self) -> Path:
        """The socket at which clients ask for credentials."""
        return self.path / "munge" / "socket"

    @property
    def state(self) -> Path:
        """The controller's memory."""
        return self.path / "state"

    def log(self, name: str) -> Path:
        """The log of one daemon."""
        return self.path / "log" / f"{name}.log"

    def spool(self, node: str) -> Path:
        """A node's memory and scripts of jobs."""
        return self.path / "spool" / node


def at(path: Path) -> Folder:
    """The folder of a local Slurm. Raises InputError if sockets can't lie below it, or it is a file or out of reach."""
    path = path.resolve()
    if len(str(path)) > LONGEST_FOLDER or any(letter in str(path) for letter in " %#,$'\""):
        raise InputError(
            f"the folder of a local Slurm may have a path of {LONGEST_FOLDER} characters, no space or any of %#,$ and"
            f" quotes in it (its sockets lie there); {path} has {len(str(path))}: give another one with --folder"
        )
    with disk.explain_errors(path), suppress(FileNotFoundError):
        if not S_ISDIR(path.stat().st_mode):
            raise InputError(f"{path} is not a folder: give another one with --folder")
    return Folder(path)


def refuse_others(folder: Folder) -> None:
    """Raises InputError if the folder holds something else than a local Slurm, which would be overwritten."""
    if folder.path.exists() and any(folder.path.iterdir()) and not folder.lock.exists():
        raise InputError(f"{folder.path} holds other things than a local Slurm: give an empty folder with --folder")


def write(
    folder: Folder, shape: Shape, ports: list[int], user: str, clients: dict[str, str], address: str | None
) -> None:
    """Write all files; `ports`: the controller's, then one per node; `clients`: paths of Slurm's own. A key is kept.

    `address` is that of `slurm_conf`.
    """
    for place in (
        folder.clients,
        folder.path / "log",
        folder.key.parent,
        folder.state,
        *map(folder.spool, shape.names),
    ):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755)
    if not folder.key.exists():
        folder.key.touch(mode=0o600)
        folder.key.write_bytes(secrets.token_bytes(128))
    folder.configuration.write_text(slurm_conf(folder, shape, ports, user, address))
    for name, program in clients.items():
        script = folder.clients / name
        script.write_text(f'{OWN_CLIENT}SLURM_CONF="${{SLURM_CONF:-{folder.configuration}}}" exec {program} "$@"\n')
        script.chmod(0o755)
    gpus = [folder.path / "gpus" / f"gpu{number}" for number in range(shape.gpus)]
    for gpu in gpus:  # Slurm wants a file for each; its number becomes that of CUDA_VISIBLE_DEVICES
        gpu.parent.mkdir(exist_ok=True)
        gpu.touch()
    gres = "".join(f"NodeName={name} Name=gpu File={gpu}\n" for name in shape.names for gpu in gpus)
    (folder.path / "gres.conf").write_text(gres)
    (folder.path / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


def slurm_conf(folder: Folder, shape: Shape, ports: list[int], user: str, address: str | None) -> str:
    """The text of slurm.conf. Daemons and srun listen on `address`, which is `machine.address()`; None: on all."""
    bound = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n" if address else ""
    address = address or LOOPBACK
    host = socket.gethostname().split(".")[0]
    gpus = f" Gres=gpu:{shape.gpus}" if shape.gpus else ""
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs={shape.cpus}"
        f" RealMemory={shape.memory}{gpus} State=UNKNOWN"
        for name, port in zip(shape.names, ports[1:], strict=True)
    )
    default_memory = min(1000, shape.memory // shape.cpus)
    gres_types = "GresTypes=gpu\n" if shape.gpus else ""
    return f"""# Written by `gradsync slurm start`, and anew by the next one.
ClusterName=gradsync
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
{bound}SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder.socket}
CredType=cred/munge

StateSaveLocation={folder.state}
SlurmdSpoolDir={folder.path}/spool/%n
SlurmctldPidFile={folder.path}/slurmctld.pid
SlurmdPidFile={folder.path}/spool/%n/slurmd.pid
SlurmctldLogFile={folder.log("slurmctld")}
SlurmdLogFile={folder.path}/log/%n.log
SlurmdDebug=info
MailProg=/bin/true

# One host plays all nodes.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout={shape.silent_seconds}
SlurmctldTimeout=60

# Memory is enforced: sampled every two seconds.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
{gres_types}
# Time is, too; and squeue knows finished jobs for an hour, since there is no accounting to ask.
OverTimeLimit=0
KillWait=3
MinJobAge=3600
CompleteWait=0
EnforcePartLimits=ALL
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0

{nodes}
PartitionName=local Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=60 DefMemPerCPU={default_memory} State=UP
"""
