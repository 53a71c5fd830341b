"""Train by one plan whose ranks may have different roles: what is refused, the start of the ranks, what each does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync import names
from gradsync.configuration.elastic import Elastic
from gradsync.configuration.options import option, taken, words
from gradsync.errors import InputError
from gradsync.experiments.hosts import OnTestbed, described, enter, hosts
from gradsync.files import disk, reading
from gradsync.lifetimes import run_lock

if TYPE_CHECKING:
    from gradsync.plan import Plan

RESULT_BYTES = 4e6  # results, metrics, arrivals and trace of a short training


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, Elastic):
    """Options of `gradsync elastic`."""

    plan: Path = option(meaning="plan to train by, of any roles; its ranks are the launch's", metavar="PLAN.json")
    before: Path | None = option(
        None, "plan of the first iterations, as post-local SGD has one (--switch)", metavar="PLAN.json"
    )
    output: Path = option(meaning="folder of the results", metavar="FOLDER")


def train(options: Options) -> dict[str, float] | None:
    """Train by the plan, once for each seed; the summary, None in a rank.

    Raises InputError for what can't be trained, before anything is started.
    """
    from gradsync.files.results import Result
    from gradsync.runtime.launch import is_rank, launch

    if is_rank():
        _train_as_rank(options)
        return None
    options.refuse()
    plan = _checked(options)
    enter(options)
    disk.refuse(options.output, RESULT_BYTES, "what a training leaves behind, at the least,")
    with run_lock.held(options.output, "elastic"):
        testbed = described(options, [plan.ranks], options.device)
        with hosts(testbed, plan.ranks) as network:
            launch(["elastic", *words(options)], plan.ranks, network)
    return Result.load(options.output / plan.name / "result.json").summary


def _plan(options: Options) -> Plan:
    from gradsync.plan import Plan

    return Plan.from_json(reading.text(options.plan, "plan"), str(options.plan))


def _before(options: Options) -> Plan | None:
    from gradsync.plan import Plan

    if options.before is None:
        return None
    return Plan.from_json(reading.text(options.before, "plan"), str(options.before))


def _checked(options: Options) -> Plan:
    """The plan; raises InputError if it, its model or its data can't be trained here."""
    from gradsync.check import check
    from gradsync.engine.masters import workers
    from gradsync.runtime import data, devices, enqueue, replay
    from gradsync.runtime.launch import elsewhere, room_for

    plan = _plan(options)
    names.refuse_form("name", plan.name, f"plan {options.plan}")  # of the folder of its results
    check(plan)
    if plan.ranks < 2:
        raise InputError(f"plan {options.plan} is for 1 rank: at least 2, a master and a worker or two workers")
    if not workers(plan):
        raise InputError(f"plan {options.plan}: no rank computes gradients, so there is nothing to train")
    if plan.passes > plan.iterations or plan.holding("scaler"):
        raise InputError(
            f"plan {options.plan} has micro-batches or a loss scale, which `gradsync train` trains with: plan without"
        )
    if replay.is_replay(options.model):
        raise InputError("--model: a replayed workload learns nothing: give a model")
    room_for(plan.ranks, f"plan {options.plan}")
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
    _refuse_switch(plan, _before(options), options, options.turns(loaded.batches.turns_an_epoch))
    if options.target_errors and loaded.test is None:
        raise InputError(f"--target-error: data {options.data!r} has no test samples: leave it out")
    return plan


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
    from gradsync.runtime.elastic import train as train_as_rank
    from gradsync.runtime.group import process_group

    plan = _plan(options)
    testbed = described(options, [plan.ranks], options.device)
    description = testbed.model_dump(exclude_none=True) if testbed else None
    with process_group(device=options.device) as (rank, ranks):
        train_as_rank(plan, taken(Elastic, options), options.output, rank, ranks, description, _before(options))
