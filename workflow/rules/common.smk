# The validated configuration, and what every rule shares.

import hashlib
import os
from pathlib import Path

from gradsync import schemes, settings
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
except InputError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{SETTINGS.name}"
JOBS = {training.job: training for training in SETTINGS.training}
TABLES = ["table2", "timelines", "fig9a", "fig9b", "gap", "training"]
DRAWN = [
    "fig1",
    "fig2",
    "fig3",
    "fig4",
    "counterexample",
]  # from examples, not from tables
FIGURES = [*DRAWN, "fig9a", "fig9b", "gap", "training"]
# Where a table comes from other than the configuration.
TABLE_INPUTS = {
    "fig9a": [f"{RESULTS}/tables/mgwfbp/gap.csv"],
    "fig9b": [f"{RESULTS}/tables/mgwfbp/gap.csv"],
    "gap": [
        f"{RESULTS}/external/status.json",
        f"{RESULTS}/profile/resnet50/workload.json",
    ],
    "training": [f"{RESULTS}/runs/train/{job}/schemes.json" for job in JOBS],
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
)
MEASURING = ("workload.py", "measure/layers.py", "measure/allreduce.py", "runtime")
RUNNING = (
    *(
        "plan.py",
        "progress.py",
        "kernels.py",
        "oracle.py",
        "trace.py",
        "results.py",
        "collectives",
        "runtime",
    ),
)


def chosen(training):
    """Schemes of a launch, in the order of config/schemes.yaml."""
    return [scheme.name for scheme in schemes.pick(SCHEMES, training.schemes, CONFIG)]
