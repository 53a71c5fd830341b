"""Train: what is refused before anything starts, and what each rank does."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradsync import names
from gradsync.commands import limits
from gradsync.commands.hosts import described, enter, hosts
from gradsync.commands.measuring import measure
from gradsync.commands.planning import plan as make_plan
from gradsync.commands.planning import read, refuse_rates, refuse_steps
from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.lifetimes import run_lock
from gradsync.slurm.launch import ranks_a_node

RESULT_BYTES = 4e6  # results, metrics and traces of a short launch
PLANNED = ".planned"  # below the output: plans that are made of schemes
# What a rank of `train` is told; None is left out.
TRAIN_KEYS = (
    *("model", "size", "batch", "data", "data_folder", "ranks", "peers", "epochs", "iterations", "block", "lr"),
    *(
        "momentum",
        "accumulate",
        "clip_norm",
        "precision",
        "statistics",
        "reference",
        "conformance",
        "checkpoint_seconds",
        "device",
        "output",
    ),
    *("paper", "testbed", "rate", "flow_rate"),
)


def train(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train a model on real ranks of this machine, under one plan or several in turn, beside stock DDP."""
    from gradsync.files.results import Result
    from gradsync.runtime.launch import is_rank, launch

    if is_rank():
        _train_rank(options)
        return None
    _refuse_training(options)  # what can be refused is refused before anything is measured or started
    enter(options)
    disk.refuse(options.output, RESULT_BYTES, "what a launch leaves behind, at the least,")
    with run_lock.held(options.output, "train"), _own_folder(options.output) as folder:
        if options.schedule:
            options.plan = _planned_here(options, folder)
        plans = _checked_plans(options)
        keys = [key for key in TRAIN_KEYS if options.testbed or limits.NEEDS.get(key) != "testbed"]
        told = [(f"--{key.replace('_', '-')}", getattr(options, key)) for key in keys]
        told += [("--plan", path) for path in options.plan or ()] + [("--peer", name) for name in options.peer or ()]
        command = ["train", *(str(part) for pair in told if pair[1] is not None for part in pair)]
        command += ["--seed", *map(str, options.seed)]
        command += ["--references" if options.references and plans else "--no-references"]
        with hosts(described(options, [options.ranks]), options.ranks) as testbed:
            launch(command, options.ranks, testbed)
    names = json.loads((options.output / "schemes.json").read_text())
    return {name: Result.load(options.output / name / "result.json").summary for name in names}


@contextmanager
def _own_folder(output: Path) -> Iterator[Path]:
    """For plans that are made here, where all nodes see them; what a killed run has left there goes first."""
    folder = output / PLANNED
    shutil.rmtree(folder, ignore_errors=True)
    with disk.explain_errors(folder):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_training(options: argparse.Namespace) -> None:
    from gradsync.configuration import peers, schemes
    from gradsync.runtime import data, devices
    from gradsync.runtime.launch import elsewhere, room_for

    room_for(options.ranks, "--ranks")
    if not elsewhere():
        devices.refuse(options.device, options.ranks)
    refuse_rates(options)
    refuse_steps(options)
    for key in ("batch", "epochs"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key} {getattr(options, key)}: at least 1")
    for key in ("iterations", "conformance", "checkpoint_seconds"):
        if not getattr(options, key) >= 0:
            raise InputError(f"--{key.replace('_', '-')} {getattr(options, key)}: not negative")
    if options.block < 2:
        raise InputError(f"--block {options.block}: at least 2, since the first iteration of a block is not timed")
    if options.iterations == 1:
        raise InputError("--iterations 1: at least 2, since the first is not timed")
    data.load(
        options.data,
        model=options.model,
        size=options.size,
        batch=options.batch,
        ranks=options.ranks,
        seed=options.seed[0],
        folder=options.data_folder,
        accumulate=options.accumulate,
    )
    if described(options, [options.ranks]) and options.schedule:
        raise InputError("--testbed: give --plan (files): what was measured on this machine is no cost of a testbed")
    if options.plan and options.schedule:
        raise InputError("give either --plan (files) or --schedule (names; measured and planned first), not both")
    if not (options.plan or options.schedule or options.peer):
        raise InputError("nothing to train: give --plan (files), --schedule (names) or --peer (names)")
    schemes.pick(_schemes(options.schemes), options.schedule or [], "--schedule", options.ranks, options.device)
    if options.peer:
        peers.pick(peers.load(options.peers), options.peer, "--peer")


def _checked_plans(options: argparse.Namespace) -> list[Any]:
    from gradsync.check import check
    from gradsync.configuration import peers
    from gradsync.plan import Plan
    from gradsync.runtime import enqueue

    plans = {}
    for path in options.plan or ():
        plan = Plan.from_json(read(path, "plan"), str(path))
        names.refuse_form("name", plan.name, f"plan {path}")  # of the folder of its results
        if plan.ranks != options.ranks:
            raise InputError(f"plan {path} is for {plan.ranks} ranks, --ranks is {options.ranks}")
        if plan.name in plans:
            raise InputError(f"plan {path}: another plan is named {plan.name!r} too")
        check(plan)
        _refuse_other_steps(plan, path, options)
        if options.device != "cpu":
            enqueue.refuse(plan)
        plans[plan.name] = plan
    if options.peer:
        for peer in peers.pick(peers.load(options.peers), options.peer, "--peer"):
            if peer.name in plans:
                raise InputError(f"--peer {peer.name}: a plan has that name too: rename one")
            if peer.plan and peer.plan not in plans:
                raise InputError(f"--peer {peer.name}: needs the plan {peer.plan!r}, which is not among those given")
            if peer.plan:
                peers.bucket_cap_mb_list(plans[peer.plan])
    return list(plans.values())


def _refuse_other_steps(plan: Any, path: Path, options: argparse.Namespace) -> None:
    """All contenders take the same samples a step and clip alike, and the results say so."""
    if plan.passes != options.accumulate:
        raise InputError(
            f"plan {path} has {plan.passes} micro-batch(es) a step, --accumulate is {options.accumulate}: "
            f"give --accumulate {plan.passes}, or plan again"
        )
    clips = {op.arguments.get("clip") for op in plan.roles[0].flat if getattr(op, "kernel", "").startswith("sgd")}
    clip = next(iter(clips - {None}), None)
    if clip != options.clip_norm:
        told = f"clips at norm {clip:g}" if clip else "clips nothing"
        asked = "is not given" if options.clip_norm is None else f"is {options.clip_norm:g}"
        raise InputError(
            f"plan {path} {told}, --clip-norm {asked}: "
            + (f"give --clip-norm {clip:g}, or plan again" if clip else "leave it out, or plan again")
        )


def _schemes(path: str | None) -> dict[str, Any]:
    """Named schemes, or one a schedule and one a collective."""
    from gradsync.configuration import schemes

    return schemes.load(path) if path else schemes.discovered()


def _planned_here(options: argparse.Namespace, folder: Path) -> list[Path]:
    """Measure this machine and plan the schemes, each with the times of its own collective."""
    from gradsync.collectives import NATIVE

    known, together = _schemes(options.schemes), ranks_a_node()
    workload, points = folder / "workload.json", folder / "allreduce.csv"
    common = {"ranks": [options.ranks], "model": options.model, "size": getattr(options, "size", None), "json": True}
    common |= {"device": options.device, "by_layer": False}
    sizes = {"batch": options.batch, "iterations": 10, "smallest": 1024, "largest": 1024}
    measure(argparse.Namespace(what="layers", output=workload, workload=None, **common, **sizes))

    own = {known[name].measured_as(options.ranks, together): known[name] for name in options.schedule}
    asked = [f"{each.collective}@{each.network(options.ranks, together).name}" for key, each in own.items() if key]
    times = argparse.Namespace(what="allreduce", output=points, workload=workload, **common, **sizes)
    times.collective = [NATIVE, *asked]
    measure(times)
    plans = []
    for name in options.schedule:
        plans.append(folder / f"{name}.json")
        keys = ("ranks", "lr", "momentum", "accumulate", "clip_norm", "precision", "statistics", "schemes")
        told = {key: getattr(options, key) for key in keys} | {"ranks_a_node": together}
        inputs = {"workload": workload, "allreduce": str(points), "schedule": name, "output": plans[-1]}
        unset: dict[str, Any] = {"scale": False, "option": []}
        unset |= dict.fromkeys(
            ("cluster", "nodes", "interference", "contention", "capacity", "prediction", "collective", "topology")
        )
        make_plan(argparse.Namespace(**told, **inputs, **unset))
    return plans


def _train_rank(options: argparse.Namespace) -> None:
    from gradsync.configuration import peers
    from gradsync.plan import Plan
    from gradsync.runtime.group import process_group
    from gradsync.runtime.train import Options, train

    plans = [Plan.from_json(read(path, "plan"), str(path)) for path in options.plan or ()]
    chosen = peers.pick(peers.load(options.peers), options.peer, "--peer") if options.peer else []
    others = ("ranks", "peers", "output", "testbed", "rate", "flow_rate")
    told = {key: getattr(options, key) for key in TRAIN_KEYS if key not in others}
    testbed = described(options, [options.ranks])
    told["testbed"] = testbed.model_dump(exclude_none=True) if testbed else None
    told |= {"seeds": tuple(options.seed), "references": options.references}
    told["statistics"] = options.statistics == "broadcast"
    with process_group(device=options.device) as (rank, ranks):
        train(plans, chosen, Options(**told), options.output, rank, ranks)
