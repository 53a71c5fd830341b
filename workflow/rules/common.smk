# The validated configuration, and what every rule shares.

import hashlib
import os
from pathlib import Path

from gradsync import peers, schemes, settings
from gradsync.errors import InputError
from snakemake.exceptions import WorkflowError

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
except InputError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{SETTINGS.name}"
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


def flags(chosen, *keys):
    """Options of the command line from the keys of a configuration entry; what is not set is left out."""
    given = {key: getattr(chosen, key) for key in keys}
    return " ".join(
        f"--{key.replace('_', '-')} {value}"
        for key, value in given.items()
        if value is not None
    )
