"""`gradsync benchmark`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gradsync.commands import configured
from gradsync.errors import RunError
from gradsync.lifetimes import leftovers

WHAT = (
    *("planning", "training", "attach", "collectives", "loading", "selection", "workflow", "testbed", "advice"),
    *("slow_links", "masters"),
)


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument("what", choices=WHAT, help="what is timed")


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Time planning, training, collectives and so on, and hold each to its targets.

    `advice` holds what was predicted to be fastest against the finished emulated launches of a configuration;
    `slow_links` trains local SGD and DiLoCo against mean gradients on an emulated network; `masters` counts updates a
    second of Hogwild EASGD and Async EASGD.
    """
    from gradsync.benchmarks import (
        attach_speed,
        bml_speed,
        choice_accuracy,
        collectives_speed,
        loading_speed,
        masters_speed,
        planning_speed,
        selection_speed,
        slow_links_speed,
        testbed_speed,
        training_speed,
        workflow_speed,
    )
    from gradsync.files.results import write_whole
    from gradsync.runtime.launch import is_rank

    settings, results = configured.load(options)
    of_ranks = {
        "attach": attach_speed.on_a_rank,
        "collectives": collectives_speed.on_a_rank,
        "testbed": bml_speed.on_a_rank,
    }
    if options.what in of_ranks and is_rank():
        of_ranks[options.what](results)
        return None
    with leftovers.temporary_folder() as folder:
        match options.what:
            case "planning":
                answer = planning_speed.measure()
            case "training":
                answer = training_speed.measure(folder, settings.peers)
            case "attach":
                answer = attach_speed.measure(folder, options.config)
            case "collectives":
                answer = collectives_speed.measure(folder, options.config)
            case "loading":
                answer = loading_speed.measure(folder)
            case "selection":
                answer = selection_speed.measure()
            case "testbed":
                answer = testbed_speed.measure(folder, options.config, results)
            case "advice":
                answer = choice_accuracy.measure(settings, results)
            case "slow_links":
                answer = slow_links_speed.measure(folder)
            case "masters":
                answer = masters_speed.measure(folder)
            case _:
                answer = workflow_speed.measure(Path(), folder)
    path = results / "benchmarks" / f"{options.what}.json"
    write_whole(path, json.dumps(answer, indent=1) + "\n")
    if not answer["met"]:
        missed = "; ".join(f"{row['task']}: {row['ratio']:.3f}" for row in answer["rows"] if not row["met"])
        raise RunError(f"benchmark: missed its target: {missed} (all rows: {path})", answer)
    return answer
