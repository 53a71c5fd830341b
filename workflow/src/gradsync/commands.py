"""What the subcommands of the command line do; each returns what is printed.

Modules that a subcommand does not need are not imported: `gradsync plan` never loads torch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from gradsync.errors import InputError, RunError


def _cost(text: str, option: str = "--allreduce", ranks: int | None = None) -> Any:
    """The cost of a message from the command line; `ranks` chooses where a file has several."""
    from gradsync.costs import Linear, fitted

    pairs = dict(re.findall(r"(\w+)=([^,]*)", text)) if "=" in text and not Path(text).is_file() else None
    if pairs is None:
        sizes, times = fitted.load_points(text, ranks)
        return fitted.fit(sizes, times, source=text)
    if set(pairs) != {"a", "b"} or text.count("=") != 2:
        raise InputError(f"{option} {text}: give a=SECONDS,b=SECONDS_PER_BYTE, or a CSV file of bytes,seconds")
    try:
        return Linear(float(pairs["a"]), float(pairs["b"]), "given")
    except ValueError:
        raise InputError(f"{option} {text}: a and b must be numbers") from None


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _refuse_rates(options: argparse.Namespace) -> None:
    for key in ("lr", "momentum"):
        if not 0 <= getattr(options, key) < float("inf"):
            raise InputError(f"--{key} {getattr(options, key)}: must be finite and not negative")


def _interference(options: argparse.Namespace, ranks: int) -> Any:
    from gradsync.costs.interference import Interference

    return Interference.load(options.interference, ranks) if options.interference else None


def _predicted(plan: Any, workload: Any, cost: Any, interference: Any = None) -> dict[str, Any]:
    from gradsync.costs import alpha_beta
    from gradsync.costs.fitted import Fitted
    from gradsync.simulate import lower_bound_seconds, simulate

    network = alpha_beta.around(cost, plan.ranks)
    plain = simulate(plan, workload, network)
    trace = simulate(plan, workload, network, interference=interference) if interference else plain
    messages = plan.messages()
    size = {layer.name: layer.bytes for layer in workload.layers}
    beyond = []
    if isinstance(cost, Fitted):
        sums = [sum(size[name] for name in message) for message in messages]
        beyond = sorted({total for total in sums if cost.extrapolates(total)})
    answer: dict[str, Any] = {
        "plan": plan.name,
        "workload": workload.name,
        "ranks": plan.ranks,
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "iteration_seconds_without_interference": plain.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        "lower_bound_seconds": lower_bound_seconds(workload, network),
        "allreduce": cost.describe(),
        "messages": messages,
        "warnings": [],
    }
    if interference:
        answer["interference"] = [
            {"bytes": point.bytes, "computation": point.computation, "communication": point.communication}
            for point in interference.points
        ]
        answer["handover_seconds"] = interference.handover_seconds
    if isinstance(cost, Fitted):
        answer["allreduce_residual"] = cost.residual
        answer["extrapolated_bytes"] = beyond
    if beyond:
        answer["warnings"].append(
            f"{len(beyond)} message size(s), up to {beyond[-1]} bytes, lie outside the measured {cost.smallest:g} to "
            f"{cost.largest:g} bytes: their times are extrapolated; measure up to the largest message"
        )
    return answer


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """Plan a workload under a schedule and predict its iteration."""
    from gradsync import schemes
    from gradsync.check import check
    from gradsync.results import write_whole
    from gradsync.workload import Workload

    _refuse_rates(options)
    workload = Workload.load(options.workload)
    cost = _cost(options.allreduce, ranks=options.ranks)
    interference = _interference(options, options.ranks)
    if options.schemes:
        (scheme,) = schemes.pick(schemes.load(options.schemes), [options.schedule], "--schedule")
    else:
        scheme = schemes.Scheme(name=options.schedule)
    chosen = {}
    for text in options.option:
        key, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"--option {text}: give KEY=VALUE")
        chosen[key] = _value(value)
    scheme = scheme.model_copy(update={"options": {**scheme.options, **chosen}})
    plan = schemes.plan(
        scheme,
        workload,
        cost,
        options.ranks,
        lr=options.lr,
        momentum=options.momentum,
        loss_scaling=options.precision == "float16",
        statistics=options.statistics == "broadcast",
    )
    check(plan)
    answer = _predicted(plan, workload, cost, interference)
    if options.output:
        write_whole(options.output, plan.to_json() + "\n")
    if options.prediction:
        write_whole(options.prediction, json.dumps(answer, indent=1) + "\n")
    for warning in answer["warnings"]:
        print(f"gradsync: warning: {warning}", file=sys.stderr)
    return answer


def _read(path: str | Path, what: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what} {path}: can't be read: {error}") from None


def simulate(options: argparse.Namespace) -> dict[str, Any]:
    """Time a plan on a workload and a network."""
    from gradsync.check import check
    from gradsync.costs import Network, alpha_beta
    from gradsync.plan import Plan
    from gradsync.results import write_whole
    from gradsync.simulate import lower_bound_seconds, simulate
    from gradsync.workload import Workload

    plan = Plan.from_json(_read(options.plan, "plan"), options.plan)
    workload = Workload.load(options.workload)
    network = alpha_beta.around(_cost(options.allreduce, ranks=plan.ranks), plan.ranks)
    interference = _interference(options, plan.ranks)
    if options.point_to_point:
        network = Network({**network.costs, "send": _cost(options.point_to_point, "--point-to-point")})
    if options.turns is not None and options.turns < 2:
        raise InputError(f"--turns {options.turns}: a period needs at least 2")
    check(plan)
    trace = simulate(plan, workload, network, turns=options.turns, interference=interference)
    if options.output:
        write_whole(options.output, trace.to_json() + "\n")
    if options.chrome:
        write_whole(options.chrome, trace.to_chrome() + "\n")
    return {
        "plan": plan.name,
        "turns": trace.turns,
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        "lower_bound_seconds": lower_bound_seconds(workload, network),
    }


def _ranks_of(text: str) -> int | None:
    """Ranks of a plan's JSON; None where it is none (which whoever reads it says)."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    ranks = content.get("ranks") if isinstance(content, dict) else None
    return ranks if isinstance(ranks, int) else None


def draw(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a plan or a trace as a timeline."""
    from gradsync.render import timeline

    text = _read(options.input, "input")
    cost = _cost(options.allreduce, ranks=_ranks_of(text)) if options.allreduce else None
    trace = timeline.load(text, str(options.input), options.workload, cost)
    timeline.draw(trace, options.output, ranks=options.rank, turn=options.turn)
    return {"drawn": str(options.output), "ranks": len(trace.ranks), "spans": len(trace.spans)}


# What a rank of `train` is told; None is left out.
TRAIN_KEYS = (
    *("model", "size", "batch", "data", "data_folder", "ranks", "peers", "epochs", "iterations", "block", "lr"),
    *("momentum", "precision", "statistics", "reference", "conformance", "checkpoint_seconds", "output"),
)


def train(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train a model on real ranks of this machine, under one plan or several in turn, beside stock DDP."""
    import tempfile

    from gradsync.results import Result
    from gradsync.runtime.launch import is_rank, launch

    if is_rank():
        _train_rank(options)
        return None
    _refuse_training(options)  # what can be refused is refused before anything is measured or started
    with tempfile.TemporaryDirectory(prefix="gradsync-") as folder:
        if options.schedule:
            options.plan = _planned_here(options, Path(folder))
        plans = _checked_plans(options)
        told = [(f"--{key.replace('_', '-')}", getattr(options, key)) for key in TRAIN_KEYS]
        told += [("--plan", path) for path in options.plan or ()] + [("--peer", name) for name in options.peer or ()]
        command = ["train", *(str(part) for pair in told if pair[1] is not None for part in pair)]
        command += ["--seed", *map(str, options.seed)]
        command += ["--references" if options.references and plans else "--no-references"]
        launch(command, options.ranks)
    names = json.loads((options.output / "schemes.json").read_text())
    return {name: Result.load(options.output / name / "result.json").summary for name in names}


def _refuse_training(options: argparse.Namespace) -> None:
    from gradsync import peers, schemes
    from gradsync.runtime import data
    from gradsync.runtime.launch import room_for

    room_for(options.ranks, "--ranks")
    _refuse_rates(options)
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
    )
    if options.plan and options.schedule:
        raise InputError("give either --plan (files) or --schedule (names; measured and planned first), not both")
    if not (options.plan or options.schedule or options.peer):
        raise InputError("nothing to train: give --plan (files), --schedule (names) or --peer (names)")
    for scheme in schemes.pick(_schemes(options.schemes), options.schedule or [], "--schedule"):
        scheme.refuse_ranks(options.ranks)
    if options.peer:
        peers.pick(peers.load(options.peers), options.peer, "--peer")


def _checked_plans(options: argparse.Namespace) -> list[Any]:
    from gradsync import peers
    from gradsync.check import check
    from gradsync.plan import Plan

    plans = {}
    for path in options.plan or ():
        plan = Plan.from_json(_read(path, "plan"), str(path))
        if plan.ranks != options.ranks:
            raise InputError(f"plan {path} is for {plan.ranks} ranks, --ranks is {options.ranks}")
        if plan.name in plans:
            raise InputError(f"plan {path}: another plan is named {plan.name!r} too")
        check(plan)
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


def _schemes(path: str | None) -> dict[str, Any]:
    """Named schemes, or one a schedule."""
    from gradsync import schedules, schemes

    return schemes.load(path) if path else {name: schemes.Scheme(name=name) for name in schedules.names()}


def export(options: argparse.Namespace) -> dict[str, Any]:
    """A plan's messages as bucket sizes of stock PyTorch DDP."""
    from gradsync.check import check
    from gradsync.peers import bucket_cap_mb_list
    from gradsync.plan import Plan

    plan = Plan.from_json(_read(options.plan, "plan"), options.plan)
    check(plan)
    sizes = bucket_cap_mb_list(plan)
    return {
        "plan": plan.name,
        "buckets": len(sizes),
        "bucket_cap_mb_list": sizes,
        "use": "DistributedDataParallel(model, bucket_cap_mb_list=[...])",
    }


def _planned_here(options: argparse.Namespace, folder: Path) -> list[Path]:
    """Measure this machine and plan the schedules."""
    workload, points = folder / "workload.json", folder / "allreduce.csv"
    common = {"ranks": [options.ranks], "model": options.model, "size": getattr(options, "size", None), "json": True}
    sizes = {"batch": options.batch, "iterations": 10, "smallest": 1024, "largest": 1024}
    measure(argparse.Namespace(what="layers", output=workload, workload=None, **common, **sizes))
    measure(argparse.Namespace(what="allreduce", output=points, workload=workload, **common, **sizes))
    plans = []
    for name in options.schedule:
        plans.append(folder / f"{name}.json")
        keys = ("ranks", "lr", "momentum", "precision", "statistics", "schemes")
        told = {key: getattr(options, key) for key in keys}
        inputs = {"workload": workload, "allreduce": str(points), "schedule": name, "output": plans[-1]}
        plan(argparse.Namespace(**told, **inputs, interference=None, option=[], prediction=None))
    return plans


def _train_rank(options: argparse.Namespace) -> None:
    from gradsync import peers
    from gradsync.plan import Plan
    from gradsync.runtime.group import process_group
    from gradsync.runtime.train import Options, train

    plans = [Plan.from_json(_read(path, "plan"), str(path)) for path in options.plan or ()]
    chosen = peers.pick(peers.load(options.peers), options.peer, "--peer") if options.peer else []
    told = {key: getattr(options, key) for key in TRAIN_KEYS if key not in ("ranks", "peers", "output")}
    told |= {"seeds": tuple(options.seed), "references": options.references}
    told["statistics"] = options.statistics == "broadcast"
    with process_group() as (rank, ranks):
        train(plans, chosen, Options(**told), options.output, rank, ranks)


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure this machine: layer times of a model, all-reduce times, or how much the two slow one another down."""
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_rank(options)
        return None
    _refuse_measurement(options)
    return _measured_allreduce(options) if options.what == "allreduce" else _measured_model(options)


def _refuse_measurement(options: argparse.Namespace) -> None:
    """What can be refused is refused before anything starts. Sets the sizes that a workload asks for."""
    from gradsync.runtime import models
    from gradsync.runtime.launch import room_for
    from gradsync.workload import Workload

    for ranks in options.ranks:
        room_for(ranks, "--ranks")
    if options.what != "layers" and min(options.ranks) < 2:
        raise InputError(f"measure {options.what}: --ranks must be at least 2")
    if options.what != "allreduce" and len(options.ranks) > 1:
        raise InputError(f"measure {options.what}: --ranks takes one number: run it once for each")
    for key in ("batch", "iterations", "smallest", "largest"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key} {getattr(options, key)}: at least 1")
    if options.what != "allreduce":
        models.shape(options.model, options.size, options.batch)
    if options.workload:
        workload = Workload.load(options.workload)
        options.smallest, options.largest = min(layer.bytes for layer in workload.layers), workload.bytes
    elif options.what == "interference":
        raise InputError("measure interference: --workload is needed: its sizes are those of the messages")
    elif options.smallest > options.largest:
        raise InputError(f"--smallest {options.smallest}: more than --largest {options.largest}")


def _measured_model(options: argparse.Namespace) -> dict[str, Any]:
    _launch_measurement(options, options.ranks[0], options.output)
    return {"measured": options.what, "output": str(options.output)}


def _measured_allreduce(options: argparse.Namespace) -> dict[str, Any]:
    """One launch for each number of ranks; all of them in one file."""
    import tempfile

    from gradsync.measure import allreduce
    from gradsync.results import machine, write_whole

    points, made_with = [], {}
    cores = machine()["cores"]
    with tempfile.TemporaryDirectory(prefix="gradsync-") as folder:
        for ranks in options.ranks:
            print(f"measure allreduce: {ranks} ranks, {options.smallest} to {options.largest} B", file=sys.stderr)
            found = Path(folder) / f"{ranks}.json"
            _launch_measurement(options, ranks, found)
            content = json.loads(found.read_text())
            points += [allreduce.point(ranks, int(size), times) for size, times in content["seconds"].items()]
            made_with[f"threads, {ranks} ranks"] = content["provenance"].pop("threads")
            made_with |= content["provenance"]
    notes = [f"{ranks} ranks share {cores} cores" for ranks in options.ranks if ranks > cores]
    write_whole(options.output, allreduce.to_csv(points, {**made_with, "notes": notes}))
    answer = {"fits": allreduce.fits(points), "notes": notes, "output": str(options.output)}
    if options.json:
        return {"points": [each._asdict() for each in points], **answer, "provenance": made_with}
    print(allreduce.columns(points))
    return answer


def _launch_measurement(options: argparse.Namespace, ranks: int, output: Path) -> None:
    from gradsync.runtime.launch import launch

    keys = ("model", "size", "batch", "iterations", "smallest", "largest", "workload")
    given = {key: getattr(options, key) for key in keys} | {"ranks": ranks, "output": output}
    told = [part for key, value in given.items() if value is not None for part in (f"--{key}", str(value))]
    launch(["measure", options.what, *told], ranks)


def _measure_rank(options: argparse.Namespace) -> None:
    from gradsync.results import write_whole
    from gradsync.runtime.group import process_group
    from gradsync.workload import Workload

    with process_group() as (rank, _):
        match options.what:
            case "allreduce":
                from gradsync.measure import allreduce

                text = json.dumps(allreduce.measure(options.smallest, options.largest))
            case "layers":
                from gradsync.measure import layers

                text = layers.measure(options.model, options.batch, options.iterations, size=options.size).to_json()
            case _:
                from gradsync.measure import interference

                workload = Workload.load(options.workload)
                text = interference.measure(workload, options.model, options.batch, size=options.size).to_json()
        if rank == 0:
            write_whole(options.output, text)


def _configured(options: argparse.Namespace) -> tuple[Any, Path]:
    from gradsync import settings

    loaded = settings.load(options.config)
    return loaded, options.results or Path("results") / loaded.name


def external(options: argparse.Namespace) -> dict[str, Any]:
    """Obtain the third-party logs of a configuration and check their SHA-256."""
    from gradsync.measure import third_party

    loaded, results = _configured(options)
    return third_party.obtain(loaded.external_data, results / "external")


def table(options: argparse.Namespace) -> dict[str, Any]:
    """Compute a table of a paper and write it as CSV, Markdown and LaTeX."""
    from gradsync.papers import compute
    from gradsync.render import tables

    loaded, results = _configured(options)
    table = compute(options.paper, options.id, loaded, results)
    return {"rows": len(table.frame), "written": tables.write(table, results / "tables" / options.paper, options.id)}


def figure(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a figure of a paper from its table, as SVG and PDF, with its data as CSV."""
    from gradsync.render import figures

    loaded, results = _configured(options)
    return {"written": figures.write(options.paper, options.id, loaded, results)}


def claims(options: argparse.Namespace) -> dict[str, Any]:
    """Decide every claim of the papers on the tables that are there."""
    from gradsync import claims as ledger
    from gradsync.results import write_whole

    loaded, results = _configured(options)
    verdicts = [verdict for paper in loaded.papers for verdict in ledger.evaluate(Path(paper), results / "tables")]
    write_whole(results / "claims.json", ledger.ledger_json(verdicts))
    write_whole(results / "claims.md", ledger.ledger_markdown(verdicts))
    return dict(ledger.summary(verdicts))


def track(options: argparse.Namespace) -> dict[str, Any]:
    """Import all results into MLflow; what is there already stays as it is."""
    from gradsync.record.tracking import import_results

    loaded, results = _configured(options)
    return import_results(loaded.mlflow, results)


def benchmark(options: argparse.Namespace) -> dict[str, Any]:
    """Time planning and simulating, or training beside stock DDP, and hold them against their targets."""
    import tempfile

    from gradsync.measure import planning_speed, training_speed
    from gradsync.results import write_whole

    loaded, results = _configured(options)
    if options.what == "planning":
        answer = planning_speed.measure()
    else:
        with tempfile.TemporaryDirectory(prefix="gradsync-") as folder:
            answer = training_speed.measure(Path(folder), loaded.peers)
    path = results / "benchmarks" / f"{options.what}.json"
    write_whole(path, json.dumps(answer, indent=1) + "\n")
    if not answer["met"]:
        missed = "; ".join(f"{row['task']}: {row['ratio']:.3f}" for row in answer["rows"] if not row["met"])
        raise RunError(f"benchmark: missed its target: {missed} (all rows: {path})")
    return answer
