# The validated configuration, and what every rule shares.

import hashlib
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from gradsync import peers, schemes, settings
from gradsync.errors import InputError
from gradsync.images.binding import bound
from gradsync.slurm import patience, preflight, states
from gradsync.slurm.launch import PROFILE, Cluster
from snakemake.exceptions import WorkflowError

# A Slurm that does not answer for a while must not make the run wait for ever.
patience.install()

# One whole file is the configuration; merging several would hide where a value came from.
CONFIG = str([*workflow.config_settings.configfiles, "config/quick.yaml"][0])

try:
    if workflow.config_settings.config or len(workflow.config_settings.configfiles) > 1:
        raise InputError(
            "give one whole configuration with --configfile (copy config/quick.yaml); --config is not read"
        )
    SETTINGS = settings.load(CONFIG)
    SCHEMES = schemes.load(SETTINGS.schemes)
    PEERS = peers.load(SETTINGS.peers)
    # The profile's settings of ranks on nodes; None: ranks are started on this machine.
    CLUSTER = Cluster.read(
        workflow.resource_settings.default_resources.args
        if workflow.resource_settings.default_resources
        else None
    )
    if CLUSTER and SETTINGS.device == "cpu":
        CLUSTER = replace(CLUSTER, gpus_per_node=0)
except InputError as error:
    raise WorkflowError(str(error)) from None

# Jobs run the code of this checkout, also in an image that holds an earlier one, and see the folders that are named.
NAMED = (
    SETTINGS.external_data,
    os.environ.get("GRADSYNC_EXTERNAL_DATA"),
    *(launch.data_folder for launch in SETTINGS.training),
)
os.environ.update(
    PYTHONPATH=str(Path(workflow.basedir) / "workflow" / "src"),
    APPTAINER_BIND=bound(os.environ.get("APPTAINER_BIND", ""), NAMED, Path.cwd()),
)
if SETTINGS.device == "cuda":
    os.environ.update(APPTAINER_NV="1")

RESULTS = f"results/{SETTINGS.name}"
IMAGE = SETTINGS.container or f"containers/{SETTINGS.device}.sif"
IN_IMAGE = any(
    str(method) in ("apptainer", "singularity")
    for method in workflow.deployment_settings.deployment_method
)
if IN_IMAGE and not shutil.which("apptainer"):
    raise WorkflowError(
        "jobs are to run in an image, and apptainer is not on the PATH: install Apptainer 1.2 or newer or load its "
        "module; or leave out --sdm (in the profile: software-deployment-method) to run them in this environment"
    )
# The image is an input of the jobs that run in it; one that was built again reruns nothing by itself.
IMAGE_INPUT = ancient(IMAGE) if IN_IMAGE else []
# srun can't be called inside an image: on a cluster, jobs of several ranks run beside it and start each rank in one.
RANKS_IMAGE = None if CLUSTER else IMAGE
EACH_RANK = (
    IMAGE if IN_IMAGE else None,
    f"--no-home {workflow.deployment_settings.apptainer_args or ''}",
)
LAUNCH = CLUSTER.exported(*EACH_RANK) if CLUSTER else ""
JOBS = {training.job: training for training in SETTINGS.training}
TABLES = [
    *("table2", "timelines", "fig5a", "fig5a_tensors", "fig5b", "fig5b_points"),
    *(
        "fig6",
        "fig6b",
        "fig7",
        "fig7b",
        "fig8",
        "fig9a",
        "fig9b",
        "gap",
        "training",
        "slowdown",
    ),
]
DRAWN = [
    "fig1",
    "fig2",
    "fig3",
    "fig4",
    "counterexample",
]  # from examples, not from tables
FIGURES = [
    *DRAWN,
    *("fig5a", "fig5b", "fig6", "fig7", "fig8", "fig9a", "fig9b", "gap", "training"),
]


# The cluster at hand, measured; where the configuration asks for it.
CLUSTER_FILE = (
    [f"config/clusters/{SETTINGS.cluster_profile.name}.yaml"]
    if SETTINGS.cluster_profile
    else []
)


def runs(*models):
    """What the launches of these models leave behind (of all, where none is named)."""
    return [
        f"{RESULTS}/runs/train/{job}/schemes.json"
        for job, training in JOBS.items()
        if not models or training.model in models
    ]


def table_file(id):
    return f"{RESULTS}/tables/mgwfbp/{id}.csv"


LOGS = f"{RESULTS}/external/status.json"
RESNET50 = f"{RESULTS}/profile/resnet50/workload.json"
GOOGLENET = f"{RESULTS}/profile/googlenet/workload.json"
NETWORK = f"{RESULTS}/profile/network/allreduce.csv"
# Where a table comes from other than the configuration.
TABLE_INPUTS = {
    "fig5a": [GOOGLENET, RESNET50],
    "fig5a_tensors": [GOOGLENET, RESNET50],
    "fig5b": [LOGS, NETWORK],
    "fig5b_points": [LOGS, NETWORK],
    "fig6": [LOGS, *runs("googlenet")],
    "fig6b": runs("googlenet"),
    "fig7": [LOGS, RESNET50, *runs("resnet50")],
    "fig7b": runs("resnet50"),
    "fig8": [table_file("fig6"), table_file("fig7")],
    "fig9a": [table_file("gap")],
    "fig9b": [table_file("gap")],
    "gap": [LOGS, RESNET50],
    "training": runs(),
    "slowdown": [f"{RESULTS}/profile/{job}/interference.json" for job in JOBS],
}
# The tables of a figure, other than the one of its name.
FIGURE_TABLES = {
    **{id: [] for id in DRAWN},
    "fig5a": ["fig5a", "fig5a_tensors"],
    "fig5b": ["fig5b", "fig5b_points"],
    "fig6": ["fig6", "fig6b"],
    "fig7": ["fig7", "fig7b"],
}


def refuse_cluster():
    """Before anything is submitted or built: missing data, and what the cluster at hand can't give, by name."""
    try:
        needed = list(workflow.dag.needrun_jobs())
        trained = [
            JOBS[job.wildcards.job] for job in needed if job.rule.name == "train"
        ]
        missing = [
            f"{launch.job}: {launch.data_folder}"
            for launch in trained
            if launch.data_folder and not Path(launch.data_folder).is_dir()
        ]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise InputError(
                f"configuration {CONFIG}: data_folder does not exist ({'; '.join(missing[:3])}{more}): "
                "link or mount your data there"
            )
        if CLUSTER is None:
            return
        if SETTINGS.device == "cuda" and not CLUSTER.gpus_per_node:
            raise InputError(
                f"configuration {CONFIG} has device: cuda, but gpus_per_node is 0 in {PROFILE}: set it, or device: cpu"
            )
        keys = ("nodes", "tasks", "mem_mb", "runtime")
        asked = {
            tuple(int(job.resources.get(key) or 0) for key in keys)
            for job in needed
            if not job.is_local
        }
        # the largest first: what it is refused for, others may be too
        for nodes_asked, tasks, memory, minutes in sorted(asked, reverse=True):
            on_a_node = min(tasks, CLUSTER.ranks_per_node)
            preflight.check(
                CLUSTER.slurm_partition or None,
                CLUSTER.slurm_account or None,
                nodes=nodes_asked,
                cpus=CLUSTER.cpus_per_rank * on_a_node,
                gpus_per_node=CLUSTER.gpus(tasks),
                memory=memory,
                minutes=minutes,
                status_command=getattr(
                    workflow.executor_settings, "status_command", None
                )
                or "squeue",
                extra=CLUSTER.sbatch_extra,
            )
    except InputError as error:
        raise WorkflowError(str(error)) from None


def explain_failures(log):
    """What ended each job that failed on the cluster, and what to do."""
    if CLUSTER:
        text = "".join(Path(file).read_text() for file in log)
        found = states.endings(text, states.log_text)
        print(states.report(found), file=sys.stderr, flush=True)


wildcard_constraints:
    job="|".join(JOBS) or "none",
    model="[a-z0-9]+",
    id="[a-z0-9_]+",


def code(*parts):
    """A hash of the package's files below `parts`: a change in the code that a stage depends on makes it run again."""
    root = Path(workflow.basedir) / "workflow" / "src" / "gradsync"
    files = [
        file
        for part in parts
        for file in (
            [root / part]
            if (root / part).is_file()
            else sorted((root / part).rglob("*.py"))
        )
    ]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


PLANNING = (
    *(
        "plan.py",
        "progress.py",
        "check.py",
        "contributions.py",
        "kernels.py",
        "schemes.py",
        "workload.py",
    ),
    *("schedules", "collectives", "updates", "costs", "simulate.py", "trace.py"),
    "interfering.py",
)
MEASURING = (
    *("workload.py", "intervals.py", "runtime"),
    *("measure/layers.py", "measure/passes.py", "measure/allreduce.py"),
    "measure/interference.py",
)
CLUSTERS = (
    *("clusters", "costs/line.py", "measure/beside.py", "measure/cluster.py"),
    *(
        "measure/cluster_nodes.py",
        "measure/cluster_links.py",
        "measure/cluster_gpus.py",
    ),
)
RUNNING = (
    *(
        "plan.py",
        "progress.py",
        "kernels.py",
        "oracle.py",
        "trace.py",
        "results.py",
        "peers.py",
        "intervals.py",
        "collectives",
        "runtime",
    ),
)


def chosen(training):
    """Schemes of a launch, in the order of config/schemes.yaml."""
    return [scheme.name for scheme in schemes.pick(SCHEMES, training.schemes, CONFIG)]


def beside(training):
    """Peers of a launch, in the order of config/peers.yaml."""
    return [peer.name for peer in peers.pick(PEERS, training.peers, CONFIG)]


def nodes(ranks):
    """Nodes that hold so many ranks; the machine at hand is one."""
    return CLUSTER.nodes(ranks) if CLUSTER else 1


def mpi(ranks):
    """`srun` where ranks are started by it: Slurm then leaves the job's tasks to the job."""
    return "srun" if CLUSTER and ranks > 1 else ""


def start(ranks):
    """Before a command that all ranks run themselves; empty where it starts its ranks on the machine at hand."""
    return CLUSTER.started(ranks, *EACH_RANK) if CLUSTER else ""


def sbatch(ranks):
    """What else a job of so many ranks asks Slurm for."""
    return CLUSTER.sbatch(ranks) if CLUSTER else ""


def cores_a_rank():
    """Cores of a job that measures: a rank's share on a cluster, all of the machine at hand."""
    return CLUSTER.cpus_per_rank if CLUSTER else workflow.cores or 1


def flags(chosen, *keys):
    """Options of the command line from the keys of a configuration entry; what is not set is left out."""
    given = {key: getattr(chosen, key) for key in keys}
    return " ".join(
        f"--{key.replace('_', '-')} {value}"
        for key, value in given.items()
        if value is not None
    )
