"""Train in a launch: what is refused, schemes that are planned first, the start of the ranks, what each rank does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync import names
from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option, taken, words
from gradsync.configuration.training import Training
from gradsync.errors import InputError
from gradsync.experiments import predict
from gradsync.experiments.hosts import described, enter, hosts
from gradsync.experiments.profile import allreduce, launches, layers
from gradsync.files import disk, packaged, reading
from gradsync.lifetimes import leftovers, run_lock
from gradsync.slurm.launch import ranks_a_node

if TYPE_CHECKING:
    from gradsync.configuration.peers import Peer
    from gradsync.configuration.scheme import Scheme
    from gradsync.plan import Plan
    from gradsync.plan.phases import PhasedPlan
    from gradsync.runtime import data
    from gradsync.runtime.data.stages import Stages

PEERS = "config/peers.yaml"
RESULT_BYTES = 4e6  # results, metrics and traces of a short launch
BROUGHT = "synthetic"  # the data of a model that brings its batch
PLANNED = ".planned"  # below the output: plans that are made of schemes
PROFILED_ITERATIONS = 10  # of layers, from which schemes are planned


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, Training):
    """Options of `gradsync train`."""

    ranks: int = option(2, "ranks that train", metavar="N")
    plans: tuple[Path, ...] = option(
        (), "train a plan (may be repeated)", flag="--plan", repeated=True, metavar="PLAN.json"
    )
    schedules: tuple[str, ...] = option(
        (),
        "measure, plan and train this scheme (may be repeated)",
        flag="--schedule",
        repeated=True,
        metavar="NAME",
    )
    schemes: str | None = option(
        None, "file of named schemes for --schedule, as config/schemes.yaml", metavar="FILE", needs="schedules"
    )
    peers: tuple[str, ...] = option(
        (), "train one of torch's own ways, too (may be repeated)", flag="--peer", repeated=True, metavar="NAME"
    )
    peers_file: str | None = option(
        None, "what --peer names", flag="--peers", metavar="FILE", unset="config/peers.yaml, else those of gradsync"
    )
    output: Path = option(meaning="folder of the results", metavar="FOLDER")


def train(options: Options) -> dict[str, dict[str, float]] | None:
    """Train all contenders in turn; the summary of each, None in a rank.

    Raises InputError for what can't be trained, before anything is measured or started.
    """
    from gradsync.files.results import CONTENDERS, Result, begin_results
    from gradsync.plan.phases import PhasedPlan
    from gradsync.runtime.launch import is_rank, launch

    if is_rank():
        _train_as_rank(_with_batch_of_own(options))
        return None
    _refuse_own(options)
    options = _with_batch_of_own(options)
    stages = _refuse(options)
    enter(options)
    disk.refuse(options.output, RESULT_BYTES, "what a launch leaves behind, at the least,")
    with run_lock.held(options.output, "train"), _folder_of_plans(options.output) as folder:
        if options.schedules:
            plans = _planned(options, folder)
            options = replace(options, plans=plans, schedules=())
        loaded = _checked_plans(options)
        phased = [plan for plan in loaded if isinstance(plan, PhasedPlan)]
        _refuse_switches({plan.name: [phase.share for phase in plan.phases] for plan in phased}, options, stages)
        options = replace(options, references=options.references and len(loaded) > len(phased))
        testbed = described(options, [options.ranks], options.device)
        begin_results(options.output)
        with hosts(testbed, options.ranks) as network:
            try:
                launch(["train", *words(options)], options.ranks, network, gpus=options.device != "cpu")
            finally:
                leftovers.sweep(leftovers.MEMORY)  # a rank that was killed has removed nothing
    contenders = json.loads((options.output / CONTENDERS).read_text())
    return {name: Result.load(options.output / name / "result.json").summary for name in contenders}


def _refuse_own(options: Options) -> None:
    """Raises InputError for a model of one's own that can't be trained here, or data beside it."""
    from gradsync.runtime.models import brought, own, refuse

    if not own.is_own(options.model):
        return
    if options.data not in (BROUGHT, Training.data) or options.recipe:
        raise InputError("--model: one of your own brings its inputs: leave --data and --stage out")
    refuse(options.model, options.size, options.batch)
    brought.refuse(options.model, _peers(options))


def _with_batch_of_own(options: Options) -> Options:
    """The same, but with the batch of a model of one's own, and no data."""
    from gradsync.runtime.models import own

    if not own.is_own(options.model):
        return options
    return replace(options, data=BROUGHT, batch=own.load(options.model).batch or 1)


@contextmanager
def _folder_of_plans(output: Path) -> Iterator[Path]:
    """A folder for plans of schemes, where all nodes see them; what a killed run has left there is removed first."""
    folder = output / PLANNED
    shutil.rmtree(folder, ignore_errors=True)
    with disk.explain_errors(folder):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse(options: Options) -> Stages:
    """The data of each stage, if nothing is wrong."""
    from gradsync import compressors
    from gradsync.configuration import schemes
    from gradsync.runtime import data, devices, replay
    from gradsync.runtime.launch import elsewhere, room_for

    room_for(options.ranks, "--ranks")
    if not elsewhere():
        devices.refuse(options.device, options.ranks)
    options.refuse_steps()
    _refuse_turns(options)
    loaded = data.load_stages(options, options.ranks, options.seeds[0])
    if options.data_cache is not None and not loaded.parts[0].training.decoded:
        raise InputError(f"--data-cache: data {options.data!r} is not decoded from files: leave it out")
    if options.data_cache == "files" and options.data_cache_folder is None:
        raise InputError("--data-cache files: give --data-cache-folder, where copies of the files are kept")
    _refuse_translation(options, loaded.parts[0])
    options.refuse_rate(loaded.turns)
    if options.target_accuracy is not None and loaded.parts[0].test is None:
        raise InputError(f"--target-accuracy: data {options.data!r} has no test samples: leave it out")
    if described(options, [options.ranks], options.device) and options.schedules:
        raise InputError("--testbed: give --plan (files): what was measured on this machine is no cost of a testbed")
    if options.schedules and options.ranks == 1:
        raise InputError(
            "--schedule: one rank sends nothing, so no message can be timed to plan from: take --ranks 2 or more, or a "
            "plan for 1 rank by --plan"
        )
    if options.plans and options.schedules:
        raise InputError("give either --plan (files) or --schedule (names; measured and planned first), not both")
    if not (options.plans or options.schedules or options.peers):
        raise InputError("nothing to train: give --plan (files), --schedule (names) or --peer (names)")
    picked = schemes.pick(
        _schemes(options),
        list(options.schedules),
        "--schedule",
        options.ranks,
        options.device,
        options.scaled,
        options.optimizer,
        in_phases=True,
    )
    compressors.refuse_training([part.compressor for scheme in picked for part in scheme.parts], "--schedule")
    shares = {scheme.name: [phase.share for phase in scheme.phases] for scheme in picked if scheme.phases}
    _refuse_switches(shares, options, loaded)
    for peer in _peers(options):
        if replay.is_replay(options.model):
            peer.refuse_replay()
    return loaded


def _refuse_switches(shares: dict[str, list[float]], options: Options, stages: Stages) -> None:
    """Raises InputError if a phase would have no iterations, or blocks could not be timed."""
    from gradsync.plan import blocks

    borders = blocks.borders_of_blocks(stages.first, stages.turns, options.block)
    first = [blocks.switches(stages.turns_after(each), borders, f"scheme {name!r}") for name, each in shares.items()]
    if first:
        blocks.refuse_cuts([turn for each in first for turn in each], borders)


def _refuse_translation(options: Options, loaded: data.Data) -> None:
    from gradsync.runtime import models
    from gradsync.runtime.data import Sentences, bleu

    if isinstance(loaded.test, Sentences):
        bleu.refuse()
    if options.label_smoothing is None:
        return
    if models.get(options.model).takes != models.TRANSLATIONS:
        raise InputError(f"--label-smoothing: model {options.model!r} does not translate: leave it out")
    if not 0 <= options.label_smoothing < 1:
        raise InputError(f"--label-smoothing {options.label_smoothing}: must be at least 0 and less than 1")


def _refuse_turns(options: Options) -> None:
    launches.refuse_counts(batch=options.batch, epochs=options.epochs)
    if len({*options.seeds}) < len(options.seeds):
        raise InputError("--seed: a seed is given twice: its second training would be taken for the first")
    for key in ("iterations", "conformance", "checkpoint_seconds"):
        if not getattr(options, key) >= 0:
            raise InputError(f"--{key.replace('_', '-')} {getattr(options, key)}: not negative")
    if options.block < 2:
        raise InputError(f"--block {options.block}: at least 2, since the first iteration of a block is not timed")
    if options.iterations == 1:
        raise InputError("--iterations 1: at least 2, since the first is not timed")


def _checked_plans(options: Options) -> list[Plan | PhasedPlan]:
    from gradsync.check import check
    from gradsync.configuration import peers
    from gradsync.plan import Plan
    from gradsync.plan.phases import PhasedPlan
    from gradsync.runtime import binding, enqueue

    plans: dict[str, Plan | PhasedPlan] = {}
    for path, plan in zip(options.plans, _loaded_plans(options), strict=True):
        names.refuse_form("name", plan.name, f"plan {path}")  # of the folder of its results
        if plan.ranks != options.ranks:
            raise InputError(f"plan {path} is for {plan.ranks} ranks, --ranks is {options.ranks}")
        if plan.name in plans:
            raise InputError(f"plan {path}: another plan is named {plan.name!r} too")
        for part in plan.plans if isinstance(plan, PhasedPlan) else (plan,):
            check(part)
            _refuse_failing(part, path)
            refuse_roles(part, str(path))
            _refuse_other_steps(part, path, options)
            if options.device != "cpu":
                enqueue.refuse(part)
            binding.refuse(part, f"plan {path}")
        plans[plan.name] = plan
    for peer in _peers(options):
        if peer.name in plans:
            raise InputError(f"--peer {peer.name}: a plan has that name too: rename one")
        needed = plans.get(peer.plan) if peer.plan else None
        if peer.plan and (needed is None or isinstance(needed, PhasedPlan)):
            raise InputError(f"--peer {peer.name}: needs the plan {peer.plan!r}, which is not among those given")
        if isinstance(needed, Plan):
            peers.bucket_cap_mb_list(needed)
    return list(plans.values())


def _refuse_failing(plan: Plan, path: Path) -> None:
    from gradsync import compressors
    from gradsync.kernels import ENCODE
    from gradsync.plan import Local

    kernels = {op.kernel for role in plan.roles for op in role.flat if isinstance(op, Local)}
    used = sorted(kernel.removeprefix(ENCODE) for kernel in kernels if kernel.startswith(ENCODE))
    compressors.refuse_training(used, f"plan {path}")


def _loaded_plans(options: Options) -> Iterator[Plan | PhasedPlan]:
    from gradsync.plan import phases

    for path in options.plans:
        yield phases.parsed(reading.text(path, "plan"), str(path))


def _peers(options: Options) -> list[Peer]:
    from gradsync.configuration import peers

    if not options.peers:
        return []
    here = PEERS if Path(PEERS).is_file() else packaged.file(PEERS)
    return peers.pick(peers.load(options.peers_file or here), list(options.peers), "--peer")


def _refuse_other_steps(plan: Plan, path: Path, options: Options) -> None:
    """All contenders take the same samples per step, clip and apply gradients alike, and the results say so."""
    from gradsync import optimizers
    from gradsync.plan import Local

    if plan.passes != options.accumulate:
        raise InputError(
            f"plan {path} has {plan.passes} micro-batch(es) a step, --accumulate is {options.accumulate}: "
            f"give --accumulate {plan.passes}, or plan again"
        )
    operations, planned_with = plan.roles[0].flat, optimizers.of(plan)
    if planned_with is not None and planned_with.name != options.optimizer:
        raise InputError(
            f"plan {path} applies gradients by {planned_with.name}, --optimizer is {options.optimizer}: "
            f"give --optimizer {planned_with.name}, or plan again"
        )
    if not options.learning_rate(1, range(len(options.stages))).constant and (
        serving := [role.name for role in plan.roles if role.until_stopped]
    ):
        raise InputError(
            f"plan {path}: role {serving[0]!r} serves others and has no iterations of its own, by which --lr-schedule "
            "or --warmup-iterations could change its rate: leave them out"
        )
    if options.scaled and plan.holding("scaler") is None:
        raise InputError(f"plan {path} has no loss scale, --precision is float16: plan again with --precision float16")
    rates = {op.arguments["lr"] for op in operations if isinstance(op, Local) and "lr" in op.arguments}
    if any(stage.lr != options.lr for stage in options.stages) and rates - {options.lr}:
        rate = min(rates - {options.lr})
        raise InputError(
            f"plan {path} has the learning rate {rate:g}, and rates of stages are multiples of --lr {options.lr:g}: "
            f"give --lr {rate:g}, or plan again"
        )
    norms = {op.arguments.get("clip") for op in operations if isinstance(op, Local)}
    norm = next(iter(norms - {None}), None)
    if norm != options.clip_norm:
        planned = f"clips at norm {norm:g}" if norm else "clips nothing"
        trained = "is not given" if options.clip_norm is None else f"is {options.clip_norm:g}"
        raise InputError(
            f"plan {path} {planned}, --clip-norm {trained}: "
            + (f"give --clip-norm {norm:g}, or plan again" if norm else "leave it out, or plan again")
        )


def refuse_roles(plan: Plan, where: str) -> None:
    """Raises InputError for a plan that is no contender: they take turns, and end each with the same on all ranks."""
    from gradsync.engine.masters import masters

    apart = masters(plan) or any(buffer.role == "centre" or buffer.shared for buffer in plan.buffers)
    if apart or plan.iterations > 1 or _averages(plan):
        raise InputError(
            f"plan {where} has a master, a centre, shared memory or a mean of parameters, and is no contender beside "
            f"plans of the mean gradient: train it by itself, gradsync elastic --plan {where}"
        )


def _averages(plan: Plan) -> bool:
    from gradsync.plan import Local

    return any(isinstance(op, Local) and op.kernel == "average" for op in plan.roles[0].flat)


def _schemes(options: Options) -> dict[str, Scheme]:
    """Named schemes, or one for each schedule and one for each collective."""
    from gradsync.configuration import schemes

    return schemes.load(options.schemes) if options.schemes else schemes.discovered()


def _planned(options: Options, folder: Path) -> tuple[Path, ...]:
    """Measure this machine and plan the schemes, each with the times of its own collective."""
    from gradsync.collectives import NATIVE
    from gradsync.configuration import sent_kinds

    schemes, together = _schemes(options), ranks_a_node()
    workload, points = folder / "workload.json", folder / "allreduce.csv"
    layers.measure(taken(layers.Options, options, iterations=PROFILED_ITERATIONS, output=workload))
    parts = [part for name in options.schedules for part in schemes[name].parts]
    measured = {part.measured_as(options.ranks, together): part for part in parts}
    collectives = [
        f"{scheme.collective}@{scheme.network(options.ranks, together).name}" for key, scheme in measured.items() if key
    ]
    chosen = [schemes[name] for name in options.schedules]
    sent = sent_kinds.of_schemes(chosen, options.ranks, together)
    allreduce.measure(
        allreduce.Options(
            ranks=(options.ranks,),
            device=options.device,
            collective=(NATIVE, *collectives),
            kind=sent.kinds or allreduce.Options.kind,
            axes=sent.places,
            workload=str(workload),
            output=points,
        )
    )
    plans = []
    for name in options.schedules:
        plans.append(folder / f"{name}.json")
        inputs = {"workload": str(workload), "allreduce": str(points)}
        changes = {"schedule": name, "ranks_a_node": together, "output": plans[-1]}
        predict.plan(taken(predict.Options, options, **inputs, **changes))
    return tuple(plans)


def _train_as_rank(options: Options) -> None:
    from gradsync.plan.phases import PhasedPlan
    from gradsync.runtime import binding
    from gradsync.runtime.group import process_group
    from gradsync.runtime.train import train

    testbed = described(options, [options.ranks], options.device)
    description = testbed.model_dump(exclude_none=True) if testbed else None
    plans, peers, training = list(_loaded_plans(options)), _peers(options), taken(Training, options)
    parts = [part for plan in plans for part in (plan.plans if isinstance(plan, PhasedPlan) else (plan,))]
    with process_group(device=options.device) as (rank, ranks):
        binding.bind_parts(parts)
        train(plans, peers, training, options.output, rank, ranks, description)
