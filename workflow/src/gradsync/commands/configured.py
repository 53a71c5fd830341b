"""What works on the results of a configuration: data, tables, figures, claims, tracking, benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gradsync import names
from gradsync.commands.configuration import configured, with_results
from gradsync.errors import RunError
from gradsync.lifetimes import leftovers

OPERATIONS_A_SECOND = 1e12  # of a model that is no launch: papers scale its times to what their testbeds compute
CONFIGURATIONS = Path("config")  # of the checkout that a command runs in


def estimate(options: argparse.Namespace) -> dict[str, Any] | None:
    """Estimate what a configuration will cost on a cluster, from its models and stated assumptions: GPU hours."""
    from gradsync.measure import gpu_hours

    loaded, _ = configured(options)
    launches = gpu_hours.estimate(loaded)
    if options.json:
        total = sum(launch.gpu_hours for launch in launches)
        return {"launches": [launch._asdict() for launch in launches], "gpu_hours": total}
    assumed = loaded.estimate
    print(gpu_hours.table(launches))
    print(
        f"assumed: {assumed.teraflops:g} TFLOP/s and {assumed.gigabits:g} Gbit/s a rank, nothing overlaps, "
        f"{assumed.startup_seconds:g} s of start-up a job (`estimate` in {options.config}); profiles of the network "
        "and the cluster come on top"
    )
    return None


def external(options: argparse.Namespace) -> dict[str, Any]:
    """Hold the numbers carried over from third-party logs against these logs, in the folder that is named."""
    from gradsync.measure import third_party

    loaded, results = configured(options)
    return third_party.check(loaded.external_data, results / "external")


def count(options: argparse.Namespace) -> dict[str, Any]:
    """Count the operations of models, or of launches of a configuration, and write their workloads; nothing is run."""
    from gradsync.files.results import write_whole
    from gradsync.measure import operations

    loaded, results = configured(options)
    launches = {launch.job: launch for launch in loaded.training}
    for name in options.name:
        names.refuse_unknown("launch or model", name, [*launches, *names.MODELS])
    written = []
    for number, name in enumerate(options.name, 1):
        print(f"counting {number}/{len(options.name)}: {name}", file=sys.stderr, flush=True)
        if launch := launches.get(name):
            counted = operations.workload(launch.model, 1e12 * loaded.estimate.teraflops, launch.batch, launch.size)
        else:
            counted = operations.workload(name, OPERATIONS_A_SECOND, 1, None)
        path = results / "counted" / name / "workload.json"
        write_whole(path, counted.to_json())
        written.append(str(path))
    return {"written": written}


def table(options: argparse.Namespace) -> dict[str, Any]:
    """Compute tables of a paper and write each as CSV, Markdown and LaTeX."""
    from gradsync.papers import compute, refuse_unknown_tables, tables

    loaded, results = configured(options)
    refuse_unknown_tables(options.paper, options.id)
    rows, written = 0, []
    for name in options.id:
        made = compute(options.paper, name, loaded, results)
        rows += len(made.frame)
        written += tables.write(made, results / "tables" / options.paper, name)
    return {"rows": rows, "written": written}


def figure(options: argparse.Namespace) -> dict[str, Any]:
    """Draw figures of a paper from its tables, each as SVG, PDF and PNG, with its data as CSV."""
    from gradsync.papers import figures

    loaded, results = configured(options)
    figures.refuse_unknown(options.paper, options.id)
    return {"written": [path for name in options.id for path in figures.write(options.paper, name, loaded, results)]}


def claims(options: argparse.Namespace) -> dict[str, Any]:
    """Decide every claim of the papers on the tables that are there."""
    from gradsync import claims as ledger
    from gradsync.claims import published
    from gradsync.files.results import write_whole

    loaded, results = with_results(options)
    files = {name: Path(paper.published) for name, paper in loaded.papers.items()}
    papers = [published.of_paper(name, file) for name, file in files.items()]
    verdicts = [verdict for file in files.values() for verdict in ledger.evaluate(file, results / "tables")]
    remedies = ledger.Remedies.of(options.config, loaded, papers, CONFIGURATIONS)
    write_whole(results / "claims.json", ledger.ledger_json(verdicts))
    write_whole(results / "claims.md", ledger.page(verdicts, remedies.remedy))
    judged = ledger.by_claim(verdicts)
    return {"claims": len(judged), **ledger.counts(judged)}


def track(options: argparse.Namespace) -> dict[str, Any]:
    """Import all results into MLflow; what is there already stays as it is."""
    from gradsync.record.tracking import import_results

    loaded, results = with_results(options)
    return import_results(loaded.mlflow, results)


def benchmark(options: argparse.Namespace) -> dict[str, Any] | None:
    """Time planning, training beside stock DDP, collectives, the workflow or the testbed; hold them against targets."""
    from gradsync.benchmarks import (
        bml_speed,
        collectives_speed,
        planning_speed,
        testbed_speed,
        training_speed,
        workflow_speed,
    )
    from gradsync.files.results import write_whole
    from gradsync.runtime.launch import is_rank

    loaded, results = configured(options)
    of_ranks = {"collectives": collectives_speed.on_a_rank, "testbed": bml_speed.on_a_rank}
    if options.what in of_ranks and is_rank():
        of_ranks[options.what](results)
        return None
    with leftovers.temporary_folder() as folder:
        match options.what:
            case "planning":
                answer = planning_speed.measure()
            case "training":
                answer = training_speed.measure(folder, loaded.peers)
            case "collectives":
                answer = collectives_speed.measure(folder, options.config)
            case "testbed":
                answer = testbed_speed.measure(folder, options.config, results)
            case _:
                answer = workflow_speed.measure(Path(), folder)
    path = results / "benchmarks" / f"{options.what}.json"
    write_whole(path, json.dumps(answer, indent=1) + "\n")
    if not answer["met"]:
        # a workflow removes the output of a job that fails: the log keeps the rows
        for row in answer["rows"]:
            print(json.dumps(row), file=sys.stderr)
        missed = "; ".join(f"{row['task']}: {row['ratio']:.3f}" for row in answer["rows"] if not row["met"])
        raise RunError(f"benchmark: missed its target: {missed} (all rows: {path})")
    return answer
