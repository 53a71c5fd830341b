"""A plan for other programs: its messages as buckets of stock DDP, or all of it as Chakra traces."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gradsync.configuration.options import option
from gradsync.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `gradsync export`."""

    plan: Path = option(meaning="what is exported", positional=True, metavar="PLAN.json")
    format: Literal["ddp", "chakra"] = option(
        "ddp", "bucket sizes of stock PyTorch DDP, or Chakra traces, which ASTRA-sim runs"
    )
    workload: Path | None = option(None, "of a Chakra trace: what computation takes", metavar="W.json")
    output: str | None = option(  # no path: the slash at the end of one would be lost
        None, "of a Chakra trace: rank 0 is written into PREFIX.0.et, and so on", metavar="PREFIX"
    )
    turns: int = option(2, "of a Chakra trace: turns of the loop that it holds", metavar="N", needs="output")


def export(options: Options) -> dict[str, Any]:
    """What the other program needs of a checked plan, with what is lost; warnings say that too.

    Raises InputError for a plan that can't be written in that format.
    """
    from gradsync.check import check
    from gradsync.files import reading
    from gradsync.plan import Plan

    plan = Plan.from_json(reading.text(options.plan, "plan"), str(options.plan))
    check(plan)
    told = _chakra(plan, options) if options.format == "chakra" else _buckets(plan, options)
    for part in told["lost"]:
        format_ = "Chakra traces" if options.format == "chakra" else "buckets of DDP"
        print(f"gradsync: warning: plan {plan.name!r}, as {format_}: {part}", file=sys.stderr)
    return told


def _buckets(plan: Any, options: Options) -> dict[str, Any]:
    from gradsync.configuration.peers import bucket_cap_mb_list, lost_in_buckets

    for flag, given in (("--workload", options.workload), ("--output", options.output)):
        if given is not None:
            raise InputError(f"{flag}: only with --format chakra: bucket sizes of DDP are printed, and have no times")
    sizes = bucket_cap_mb_list(plan)
    return {
        "plan": plan.name,
        "buckets": len(sizes),
        "bucket_cap_mb_list": sizes,
        "lost": lost_in_buckets(plan),
        "use": "DistributedDataParallel(model, bucket_cap_mb_list=[...])",
    }


def _chakra(plan: Any, options: Options) -> dict[str, Any]:
    from gradsync.costs import Network
    from gradsync.engine.clocks import NetworkClock
    from gradsync.experiments.costs import refuse_other
    from gradsync.files.writing import write_whole
    from gradsync.interchange import chakra_export
    from gradsync.interchange.chakra_file import ENDING
    from gradsync.plan.workload import Workload

    if options.workload is None or options.output is None:
        raise InputError("--format chakra: needs --workload, for times of computation, and --output PREFIX")
    prefix = _prefix(options.output)
    workload = Workload.load(options.workload)
    refuse_other(plan, workload)
    clock = NetworkClock(plan, dict.fromkeys(range(plan.ranks), workload), Network({}), None)
    exported = chakra_export.export(plan, workload, clock.local, options.turns)
    files = {prefix.with_name(f"{prefix.name}.{rank}{ENDING}"): each for rank, each in enumerate(exported.files)}
    told: dict[str, Any] = {
        "plan": plan.name,
        "ranks": plan.ranks,
        "turns": options.turns,
        "iterations": options.turns * plan.iterations,
        "traces": f"{prefix}.0{ENDING} .. {prefix}.{plan.ranks - 1}{ENDING}",
        "lost": exported.lost,
    }
    if exported.groups:
        groups = prefix.with_name(f"{prefix.name}.groups.json")
        files[groups] = (json.dumps(exported.groups, indent=1) + "\n").encode()
        told["groups"] = str(groups)
    given = [os.path.realpath(options.plan), os.path.realpath(options.workload)]
    if lost := next((path for path in files if os.path.realpath(path) in given), None):
        raise InputError(f"{lost}: would be overwritten: name another --output")
    for path, content in files.items():
        write_whole(path, content)
    return told | {"use": f"--workload-configuration={prefix}"}


def _prefix(output: str) -> Path:
    """What the names of the traces begin with; raises InputError if it names a folder and no file in it."""
    if output.rpartition("/")[2] in ("", ".", ".."):
        raise InputError(
            f"--output {output}: names a folder: add what the names of traces begin with, as in {Path(output) / 'mine'}"
        )
    return Path(output)
