"""Train by plans whose ranks may have different roles: what is refused, the start of the ranks, what each does.

Each plan is a launch of its own, one after the other. An interrupted command goes on after the plans that are done.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync import names
from gradsync.configuration.elastic import Elastic
from gradsync.configuration.on_testbed import NO_SHARED_MEMORY, OnTestbed
from gradsync.configuration.options import option, taken, words
from gradsync.errors import InputError
from gradsync.experiments.hosts import described, enter, hosts
from gradsync.files import disk, reading
from gradsync.files.writing import write_whole
from gradsync.lifetimes import leftovers, run_lock

if TYPE_CHECKING:
    from gradsync.plan import Plan

RESULT_BYTES = 4e6  # results, metrics, arrivals and trace of a short training
DONE = "done.json"  # digests of those that a command has trained that has not ended
SHOWN = ("iterations", "seconds", "iteration_seconds", "error", "comm_share")  # of each of several plans


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, Elastic):
    """Options of `gradsync elastic`."""

    plans: tuple[Path, ...] = option(
        (),
        "plan to train by, of any roles; its ranks are the launch's (may be repeated: one launch after the other)",
        flag="--plan",
        repeated=True,
        metavar="PLAN.json",
    )
    before: Path | None = option(
        None, "plan of the first iterations, as post-local SGD has one (--switch)", metavar="PLAN.json"
    )
    output: Path = option(meaning="folder of the results", metavar="FOLDER")


def train(options: Options) -> dict[str, float] | None:
    """Train by each plan, once for each seed; the summary, of several the main numbers of each. None in a rank.

    Raises InputError for what can't be trained, before anything is started.
    """
    from gradsync.files.results import Result, begin_results, write_contenders
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _train_as_rank(options)
        return None
    options.refuse()
    plans = [_checked(path, options) for path in options.plans]
    names_of_plans = [plan.name for plan in plans]
    if not plans or len(set(names_of_plans)) < len(plans):
        raise InputError("--plan: give at least one plan, and each name once: results lie in folders of these names")
    if options.before is not None and len(plans) > 1:
        raise InputError("--before: is the first phase of one training: give one --plan with it")
    enter(options)
    disk.refuse(options.output, RESULT_BYTES * len(plans), "what a training leaves behind, at the least,")
    with run_lock.held(options.output, "elastic"):
        begin_results(options.output)
        _train_in_turn(plans, options)
        write_contenders(options.output, names_of_plans)
        (options.output / DONE).unlink(missing_ok=True)
    summaries = {name: Result.load(options.output / name / "result.json").summary for name in names_of_plans}
    if len(plans) == 1:
        return summaries[names_of_plans[0]]
    return {f"{name} {key}": each[key] for name, each in summaries.items() for key in SHOWN if key in each}


def _train_in_turn(plans: list[Plan], options: Options) -> None:
    """A launch for each plan that this command, or one that was interrupted, has not trained with these options."""
    from gradsync.runtime.launch import launch

    done = _done(options)
    told = words(replace(options, plans=()))
    for path, plan in zip(options.plans, plans, strict=True):
        key = json.dumps([told, plan.digest])
        if key in done:
            print(f"{plan.name}: trained already", file=sys.stderr, flush=True)
            continue
        testbed = described(options, [plan.ranks], options.device)
        with hosts(testbed, plan.ranks) as network:
            try:
                of_plan = ["elastic", *words(replace(options, plans=(path,)))]
                launch(of_plan, plan.ranks, network, gpus=options.device != "cpu")
            finally:
                leftovers.sweep(leftovers.MEMORY)  # a rank that was killed has removed nothing
        done.append(key)
        if len(plans) > 1:
            write_whole(options.output / DONE, json.dumps(done) + "\n")


def _done(options: Options) -> list[str]:
    """What an interrupted command has trained; a list that can't be read is none."""
    try:
        content = json.loads((options.output / DONE).read_text())
    except (OSError, ValueError):
        return []
    return [str(each) for each in content] if isinstance(content, list) else []


def _plan(path: Path) -> Plan:
    from gradsync.plan import Plan

    return Plan.from_json(reading.text(path, "plan"), str(path))


def _before(options: Options) -> Plan | None:
    from gradsync.plan import Plan

    if options.before is None:
        return None
    return Plan.from_json(reading.text(options.before, "plan"), str(options.before))


def _checked(path: Path, options: Options) -> Plan:
    """The plan; raises InputError if it, its model or its data can't be trained here."""
    from gradsync.check import check
    from gradsync.engine.masters import workers
    from gradsync.runtime import binding, data, devices, enqueue, models, replay
    from gradsync.runtime.launch import elsewhere, room_for

    plan = _plan(path)
    names.refuse_form("name", plan.name, f"plan {path}")  # of the folder of its results
    check(plan)
    if not workers(plan):
        raise InputError(f"plan {path}: no rank computes gradients, so there is nothing to train")
    if plan.passes > plan.iterations or plan.holding("scaler"):
        raise InputError(
            f"plan {path} has micro-batches or a loss scale, which `gradsync train` trains with: plan without"
        )
    models.refuse_own(options.model, "trained with roles")
    if replay.is_replay(options.model):
        raise InputError("--model: a replayed workload learns nothing: give a model")
    if options.testbed and (binding.parts_of(plan) or any(buffer.shared for buffer in plan.buffers)):
        raise InputError(f"--testbed {options.testbed}: plan {path} {NO_SHARED_MEMORY}")
    if options.compute_seconds is not None and not _whole(plan):
        raise InputError(
            f"--compute-seconds {options.compute_seconds:g}: plan {path} waits for single layers or sends their "
            "gradients, and it is not told how long each takes: plan a method, or leave it out"
        )
    room_for(plan.ranks, f"plan {path}")
    binding.refuse(plan, f"plan {path}")
    if not elsewhere():
        devices.refuse(options.device, plan.ranks)
    if options.device != "cpu":
        enqueue.refuse(plan)
    loaded = data.load(
        options.data,
        model=options.model,
        size=options.size,
        batch=options.batch,
        ranks=len(workers(plan)),
        seed=options.seeds[0],
        folder=options.data_folder,
    )
    if isinstance(loaded.training, data.Sentences):
        raise InputError(
            f"--data {options.data}: translations are trained by `gradsync train` alone: choose other data"
        )
    _refuse_switch(plan, _before(options), options, options.turns(loaded.batches.turns_an_epoch))
    if options.target_errors and loaded.test is None:
        raise InputError(f"--target-error: data {options.data!r} has no test samples: leave it out")
    return plan


def _whole(plan: Plan) -> bool:
    """Whether each forward needs all parameters, and nothing is done with gradients before there are all."""
    from gradsync.plan import Need, Ready

    operations = [op for role in plan.roles for op in role.flat]
    pieces = [ref for op in operations if not isinstance(op, Ready) for ref in op.reads]
    return all(op.layer is None for op in operations if isinstance(op, Need)) and all(
        ref.stop - ref.start == plan.elements for ref in pieces if plan.buffer[ref.buffer].role == "gradient"
    )


def _refuse_switch(plan: Plan, before: Plan | None, options: Options, iterations: int) -> None:
    """Raises InputError for a plan of a second phase alone, and for a first one that it can't go on from."""
    from gradsync.check import check
    from gradsync.engine.masters import masters

    if before is None:
        if phase := plan.provenance.get("before"):
            raise InputError(
                f"plan {plan.name!r} is that of a second phase, and begins with iterations of {phase}: give --before "
                "(their plan) and --switch (how many)"
            )
        if options.switch:
            raise InputError(f"--switch {options.switch}: from which plan? give --before, or leave it out")
        return
    where = f"--before {options.before}"
    check(before)
    if (before.ranks, before.tensors) != (plan.ranks, plan.tensors):
        raise InputError(f"{where} is for other ranks or another model than plan {plan.name!r}: plan both from one")
    for each in (before, plan):
        if masters(each) or any(buffer.shared for buffer in each.buffers):
            raise InputError(
                f"{where}: plan {each.name!r} has a master or shared memory: only plans of workers alone go on from "
                "one another"
            )
    if before.passes > before.iterations or before.holding("scaler"):
        raise InputError(f"{where} has micro-batches or a loss scale: plan without")
    if not 0 < options.switch < iterations:
        raise InputError(
            f"--switch {options.switch}: the training has {iterations} iterations, of which some are by --before and "
            "some by --plan"
        )
    for flag, each in (("--before", before), ("--plan", plan)):
        if options.switch % each.iterations:
            raise InputError(
                f"--switch {options.switch}: a period of {flag} has {each.iterations} iterations: give a multiple"
            )


def _train_as_rank(options: Options) -> None:
    from gradsync.runtime import binding
    from gradsync.runtime.elastic import train as train_as_rank
    from gradsync.runtime.group import process_group

    (plan,) = map(_plan, options.plans)
    testbed = described(options, [plan.ranks], options.device)
    description = testbed.model_dump(exclude_none=True) if testbed else None
    with process_group(device=options.device) as (rank, ranks):
        binding.bind_parts([plan])
        train_as_rank(plan, taken(Elastic, options), options.output, rank, ranks, description, _before(options))
