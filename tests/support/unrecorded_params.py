"""Prints each rule and parameter that Snakemake keeps no record of: a changed value of it would rerun nothing.

Usage: python unrecorded_params.py CONFIGURATION, in the project's folder.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from snakemake.api import SnakemakeApi
from snakemake.persistence import UNREPRESENTABLE
from snakemake.settings.types import ConfigSettings, OutputSettings, Quietness, ResourceSettings


def main(configuration: str) -> None:
    """Build the DAG and look at the parameters of every job."""
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL}, dryrun=True)) as api:
        workflow = api.workflow(
            resource_settings=ResourceSettings(cores=2),
            config_settings=ConfigSettings(configfiles=[Path(configuration)]),
            snakefile=Path("Snakefile"),
        )
        with contextlib.redirect_stdout(io.StringIO()):
            workflow.dag().execute_workflow(executor="dryrun")
        of = workflow._workflow
        lost = {
            f"{job.rule.name}.{name}"
            for job in of.dag.jobs
            for name, value in job.params.items()
            if of.persistence._serialize_param(value) is UNREPRESENTABLE
        }
        print(f"{len(list(of.dag.jobs))} jobs", *sorted(lost), sep="\n")


main(sys.argv[1])
