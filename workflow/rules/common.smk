# The validated configuration, and what every rule shares.

import os
import re
import shutil
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from gradsync import papers
from gradsync.collectives import NATIVE
from gradsync.configuration import folders, peers, schemes, sent_kinds, settings
from gradsync.configuration.options import taken, words
from gradsync.configuration.training import Compute, Steps
from gradsync.errors import InputError
from gradsync.images.binding import bound
from gradsync.measure import carried
from gradsync.papers import coverage, declaration
from gradsync.slurm import patience, preflight, states
from gradsync.slurm.launch import PROFILE, Cluster
from gradsync.testbed import privileges
from gradsync.workflow import resumption
from gradsync.workflow.import_closure import digest as code
from snakemake.deployment.singularity import Singularity
from snakemake.exceptions import WorkflowError

# This run takes over what a killed run has left; all that it starts ends with it.
resumption.install(workflow)
# A Slurm that does not answer for a while must not make the run wait for ever.
patience.install()

# One whole file is the configuration; a merge of several would hide where a value comes from.
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

# Jobs run the code of this checkout, even in an image that holds an earlier one, and see the folders that are named.
NAMED = [*folders.named(SETTINGS), os.environ.get("GRADSYNC_EXTERNAL_DATA")]
os.environ.update(
    PYTHONPATH=str(Path(workflow.basedir) / "workflow" / "src"),
    APPTAINER_BIND=bound(os.environ.get("APPTAINER_BIND", ""), NAMED, Path.cwd()),
)
if SETTINGS.device == "cuda":
    os.environ.update(APPTAINER_NV="1")

RESULTS = f"results/{SETTINGS.name}"
IMAGE = SETTINGS.container or f"containers/{SETTINGS.device}.sif"
METHODS = {str(each) for each in workflow.deployment_settings.deployment_method}
IN_IMAGE = not METHODS.isdisjoint(("apptainer", "singularity"))
if IN_IMAGE and not shutil.which("apptainer"):
    refused = (
        "jobs are to run in an image, and apptainer is not on the PATH: install Apptainer 1.2 or newer or load its "
        "module; or leave out --sdm (in the profile: software-deployment-method) to run them in this environment"
    )
    if not workflow.output_settings.dryrun:
        raise WorkflowError(refused)
    Singularity().checked = True  # a dry run starts nothing in an image
    print(f"only a dry run is possible here: {refused}", file=sys.stderr)
# The image is an input of the jobs that run in it; one that was built again reruns nothing by itself.
IMAGE_INPUT = ancient(IMAGE) if IN_IMAGE else []
# srun can't be called inside an image: on a cluster, jobs of several ranks run outside and start each rank in one.
RANKS_IMAGE = None if CLUSTER else IMAGE
EACH_RANK = (
    IMAGE if IN_IMAGE else None,
    f"--no-home {workflow.deployment_settings.apptainer_args or ''}",
)
LAUNCH = CLUSTER.exported(*EACH_RANK) if CLUSTER else ""
# Ranks that share a node of the cluster; None if they are started on the machine at hand.
RANKS_A_NODE = CLUSTER.ranks_per_node if CLUSTER else None
BEFORE_TABLES = 1  # the priority of what has the machine to itself: what remains then shares the cores
JOBS = {training.job: training for training in SETTINGS.training}
ELASTIC = {launch.job: launch for launch in SETTINGS.elastic}
ELASTIC_EMULATED = {job: launch for job, launch in ELASTIC.items() if launch.testbed}
EMULATED = {launch.job: launch for launch in SETTINGS.emulated}
# The cluster at hand, measured, if the configuration has it measured.
CLUSTER_FILE = (
    [f"config/clusters/{SETTINGS.cluster_profile.name}.yaml"]
    if SETTINGS.cluster_profile
    else []
)


@cache
def benchmarked():
    """The benchmarks that can be timed here; if no testbed can be made, the reason is printed and it is left out."""
    benchmarks = [
        "planning",
        "training",
        "attach",
        "collectives",
        "loading",
        "selection",
        "workflow",
        "masters",
    ]
    reason = privileges.impossible()
    if not reason:
        return [*benchmarks, "testbed", "slow_links"]
    print(f"no benchmark on testbeds: {reason}", file=sys.stderr, flush=True)
    return benchmarks


def named(jobs):
    """The pattern of these names of launches."""
    return "|".join(map(re.escape, sorted(jobs))) or "none"


def screen_text(message):
    """What the screen shows for a job; None in a dry run, which shows the job's files, as for every job."""
    return None if workflow.output_settings.dryrun else message


def table_file(paper, id):
    return f"{RESULTS}/tables/{paper}/{id}.csv"


def figure_file(paper, id):
    return f"{RESULTS}/figures/{paper}/{id}.svg"


NETWORK = f"{RESULTS}/profile/network/allreduce.csv"
CONTENTION = f"{RESULTS}/profile/network/contention.json"
SELECTION = f"{RESULTS}/profile/selection/times.json"
LOADING = f"{RESULTS}/runs/loading/{SETTINGS.loading.job}/schemes.json"


# The declaration of each paper of the configuration, and whose files it means.
PAPERS = {paper: papers.declared(paper) for paper in SETTINGS.papers}
PLACES = {paper: declaration.Place(paper, SETTINGS, Path(RESULTS)) for paper in PAPERS}


def all_tables():
    """Every table of every paper, as (paper, id)."""
    return [(key, id) for key, paper in PAPERS.items() for id in paper.tables]


def all_runs():
    """What each launch ends with."""
    return [
        *expand(
            f"{RESULTS}/runs/elastic/{{elastic}}/schemes.json", elastic=list(ELASTIC)
        ),
        *expand(f"{RESULTS}/runs/train/{{job}}/schemes.json", job=list(JOBS)),
        *expand(
            f"{RESULTS}/runs/emulated/{{launch}}/status.json", launch=list(EMULATED)
        ),
    ]


def all_figures():
    """Every figure for which this configuration has anything to show, as (paper, id)."""
    return [
        (key, id) for key, paper in PAPERS.items() for id in paper.shown(PLACES[key])
    ]


def replayed(launch):
    """The files that an emulated launch is made from."""
    sources = PAPERS[launch.paper].replayed
    return [path for source in sources for path in source(PLACES[launch.paper])]


def refuse_cluster():
    """Refuse, before anything is submitted or built, missing data or testbeds and what the cluster at hand can't give."""
    try:
        needed = list(workflow.dag.needrun_jobs())
        trained = [
            JOBS[job.wildcards.job] for job in needed if job.rule.name == "train"
        ]
        trained += [
            ELASTIC[job.wildcards.elastic]
            for job in needed
            if job.rule.name in ("train_elastic", "emulate_elastic")
        ]
        emulated = [
            job.wildcards.elastic
            for job in needed
            if job.rule.name == "emulate_elastic"
        ]
        if emulated and (reason := privileges.impossible()):
            raise InputError(
                f"configuration {CONFIG}: elastic launches with a testbed ({', '.join(emulated)}) can't run: {reason}"
            )
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
        requests = {
            tuple(int(job.resources.get(key) or 0) for key in keys)
            for job in needed
            if not job.is_local
        }
        # the largest first: others may be refused for the same reason
        for nodes_asked, tasks, memory, minutes in sorted(requests, reverse=True):
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
    """Print what ended each job that failed on the cluster, and what to do."""
    if CLUSTER:
        text = "".join(Path(file).read_text() for file in log)
        endings = states.endings(text, states.log_text)
        print(states.report(endings), file=sys.stderr, flush=True)


wildcard_constraints:
    launch="|".join(EMULATED) or "none",
    job="|".join(JOBS) or "none",
    elastic=named(ELASTIC),
    model="|".join(SETTINGS.profiles) or "none",
    paper="|".join(SETTINGS.papers) or "none",
    id="[a-z0-9_]+",


def schemes_of(training):
    """Schemes of a launch, in the order of config/schemes.yaml."""
    picked = schemes.pick(
        SCHEMES,
        training.schemes,
        CONFIG,
        training.ranks,
        SETTINGS.device,
        training.scaled,
        training.optimizer,
        in_phases=True,
    )
    return [scheme.name for scheme in picked]


def collectives_of(launch):
    """The all-reduces timed for a launch: the backend's own, and each other one that its schemes send by, once."""
    by_measurement = {
        part.measured_as(launch.ranks, ranks_a_node(launch)): part
        for name in schemes_of(launch)
        for part in SCHEMES[name].parts
    }
    others = [
        f"{scheme.collective}@{scheme.network(launch.ranks, ranks_a_node(launch)).name}"
        for measured, scheme in by_measurement.items()
        if measured
    ]
    return ["native", *others]


def kinds_of(launch):
    """The other kinds of messages that its schemes send, as options of `gradsync measure launch`."""
    chosen = map(SCHEMES.get, schemes_of(launch))
    return sent_kinds.of_schemes(chosen, launch.ranks, ranks_a_node(launch)).words()


def ranks_a_node(launch):
    """The ranks that share a node, for topologies of nodes; None if that is not known."""
    return launch.ranks_a_node or RANKS_A_NODE


def nodes_of(launch):
    """That number as an option of `gradsync plan`."""
    together = ranks_a_node(launch)
    return [f"--ranks-a-node={together}"] if together else []


def contention_of(wildcards):
    """Measured contention, for a plan with several lanes, if it is measured between as many ranks as the plan has."""
    scheme, ranks = SCHEMES[wildcards.scheme], JOBS[wildcards.job].ranks
    measured = scheme.collective == NATIVE and ranks == SETTINGS.contention.ranks
    return [CONTENTION] if measured and scheme.lanes > 1 else []


def elastic_ranks(wildcards):
    """The most ranks that a launch of an entry of `elastic` has: its methods run one after the other."""
    launch = ELASTIC[wildcards.elastic]
    return max(SCHEMES[name].ranks(launch.workers) for name in launch.methods)


def peers_of(training):
    """Peers of a launch, in the order of config/peers.yaml."""
    return [peer.name for peer in peers.pick(PEERS, training.peers, CONFIG)]


def nodes(ranks):
    """How many nodes hold so many ranks; the machine at hand is one."""
    return CLUSTER.nodes(ranks) if CLUSTER else 1


def mpi(ranks):
    """`srun` if it starts the ranks: Slurm then leaves the job's tasks to the job."""
    return "srun" if CLUSTER and ranks > 1 else ""


def start(ranks):
    """The prefix of a command that every rank runs; empty if the command starts its ranks on the machine at hand."""
    return CLUSTER.started(ranks, *EACH_RANK) if CLUSTER else ""


def sbatch(ranks):
    """Further options of Slurm for a job of so many ranks."""
    return CLUSTER.sbatch(ranks) if CLUSTER else ""


def cores_a_rank():
    """Cores of a job that measures: a rank's share on a cluster, or all of the machine at hand."""
    return CLUSTER.cpus_per_rank if CLUSTER else workflow.cores or 1


def flags(entry, *keys):
    """Options of the command line from the keys of a configuration entry; keys that are not set are left out.

    It is a list of words, which a command takes with `:q`: the shell interprets nothing in them.
    """
    values = {key: getattr(entry, key) for key in keys}
    return [
        f"--{key.replace('_', '-')}={value}"
        for key, value in values.items()
        if value is not None
    ]
