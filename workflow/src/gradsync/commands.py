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


def _cost(text: str, option: str = "--allreduce") -> Any:
    """The cost of a message from the command line."""
    from gradsync.costs import Linear, fitted

    pairs = dict(re.findall(r"(\w+)=([^,]*)", text)) if "=" in text and not Path(text).is_file() else None
    if pairs is None:
        sizes, times = fitted.load_points(text)
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


def _predicted(plan: Any, workload: Any, cost: Any) -> dict[str, Any]:
    from gradsync.costs import alpha_beta
    from gradsync.costs.fitted import Fitted
    from gradsync.simulate import lower_bound_seconds, simulate

    network = alpha_beta.around(cost, plan.ranks)
    trace = simulate(plan, workload, network)
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
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        "lower_bound_seconds": lower_bound_seconds(workload, network),
        "allreduce": cost.describe(),
        "messages": messages,
        "warnings": [],
    }
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
    cost = _cost(options.allreduce)
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
    plan = schemes.plan(scheme, workload, cost, options.ranks, lr=options.lr, momentum=options.momentum)
    check(plan)
    answer = _predicted(plan, workload, cost)
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
    network = alpha_beta.around(_cost(options.allreduce), plan.ranks)
    if options.point_to_point:
        network = Network({**network.costs, "send": _cost(options.point_to_point, "--point-to-point")})
    if options.turns is not None and options.turns < 2:
        raise InputError(f"--turns {options.turns}: a period needs at least 2")
    check(plan)
    trace = simulate(plan, workload, network, turns=options.turns)
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


def draw(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a plan or a trace as a timeline."""
    from gradsync.render import timeline

    text = _read(options.input, "input")
    cost = _cost(options.allreduce) if options.allreduce else None
    trace = timeline.load(text, str(options.input), options.workload, cost)
    timeline.draw(trace, options.output, ranks=options.rank, turn=options.turn)
    return {"drawn": str(options.output), "ranks": len(trace.ranks), "spans": len(trace.spans)}


def train(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train a model on real ranks of this machine, under one plan or several in turn."""
    import tempfile

    from gradsync import schedules
    from gradsync.check import check
    from gradsync.plan import Plan
    from gradsync.runtime import data, models
    from gradsync.runtime.launch import is_rank, launch, room_for

    if is_rank():
        _train_rank(options)
        return None
    room_for(options.ranks, "--ranks")  # what can be refused is refused before anything is measured or started
    _refuse_rates(options)
    for key in ("batch", "epochs"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key} {getattr(options, key)}: at least 1")
    shape = models.get(options.model).shape
    data.load(options.data, options.model, shape, options.batch, options.ranks, options.seed)
    if options.block < 2:
        raise InputError(f"--block {options.block}: at least 2, since the first iteration of a block is not timed")
    if bool(options.plan) == bool(options.schedule):
        raise InputError("give either --plan (files) or --schedule (names; measured and planned first)")
    for name in options.schedule or ():
        schedules.get(name)
    with tempfile.TemporaryDirectory(prefix="gradsync-") as folder:
        if options.schedule:
            options.plan = _planned_here(options, Path(folder))
        for path in options.plan:
            plan = Plan.from_json(_read(path, "plan"), str(path))
            if plan.ranks != options.ranks:
                raise InputError(f"plan {path} is for {plan.ranks} ranks, --ranks is {options.ranks}")
            check(plan)
        keys = ("model", "data", "ranks", "batch", "epochs", "block", "seed", "output")
        command = ["train", *(part for key in keys for part in (f"--{key}", str(getattr(options, key))))]
        launch([*command, *(part for path in options.plan for part in ("--plan", str(path)))], options.ranks)
    from gradsync.results import Result

    names = json.loads((options.output / "schemes.json").read_text())
    return {name: Result.load(options.output / name / "result.json").summary for name in names}


def _planned_here(options: argparse.Namespace, folder: Path) -> list[Path]:
    """Measure this machine and plan the schedules."""
    workload, points = folder / "workload.json", folder / "allreduce.csv"
    common = {"ranks": options.ranks, "model": options.model, "batch": options.batch}
    sizes = {"iterations": 10, "smallest": 1024, "largest": 1024}
    measure(argparse.Namespace(what="layers", output=workload, workload=None, **common, **sizes))
    measure(argparse.Namespace(what="allreduce", output=points, workload=workload, **common, **sizes))
    plans = []
    for name in options.schedule:
        plans.append(folder / f"{name}.json")
        told = {"ranks": options.ranks, "lr": options.lr, "momentum": options.momentum, "output": plans[-1]}
        inputs = {"workload": workload, "allreduce": str(points), "schedule": name}
        plan(argparse.Namespace(**told, **inputs, schemes=None, option=[], prediction=None))
    return plans


def _train_rank(options: argparse.Namespace) -> None:
    from gradsync.plan import Plan
    from gradsync.runtime.group import process_group
    from gradsync.runtime.train import Options, train

    plans = [Plan.from_json(_read(path, "plan"), str(path)) for path in options.plan]
    with process_group() as (rank, ranks):
        chosen = Options(options.model, options.data, options.batch, options.epochs, options.block, options.seed)
        train(plans, chosen, options.output, rank, ranks)


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure this machine: layer times of a model, or all-reduce times."""
    from gradsync.runtime.launch import is_rank, launch, room_for
    from gradsync.workload import Workload

    if not is_rank():
        room_for(options.ranks, "--ranks")
        if options.what == "allreduce" and options.ranks < 2:
            raise InputError("measure allreduce: --ranks must be at least 2")
        if options.what == "layers":
            from gradsync.runtime import models

            models.get(options.model)
        if options.workload:
            workload = Workload.load(options.workload)
            options.smallest, options.largest = min(layer.bytes for layer in workload.layers), workload.bytes
        for key in ("batch", "iterations", "smallest", "largest"):
            if getattr(options, key) < 1:
                raise InputError(f"--{key} {getattr(options, key)}: at least 1")
        keys = ("ranks", "model", "batch", "iterations", "smallest", "largest", "output")
        told = [part for key in keys for part in (f"--{key}", str(getattr(options, key)))]
        launch(["measure", options.what, *told], options.ranks)
        return {"measured": options.what, "output": str(options.output)}
    from gradsync.measure import allreduce
    from gradsync.results import write_whole
    from gradsync.runtime.group import process_group
    from gradsync.runtime.timing import all_reduce_seconds

    with process_group() as (rank, _):
        if options.what == "allreduce":
            points = all_reduce_seconds(allreduce.sizes(options.smallest, options.largest), allreduce.REPEATS)
            if rank == 0:
                allreduce.save(points, options.output)
        else:
            from gradsync.measure.layers import measure

            workload = measure(options.model, options.batch, options.iterations)
            if rank == 0:
                write_whole(options.output, workload.to_json())
    return None


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
    """Time planning and simulating and hold them against their targets."""
    from gradsync.measure.planning_speed import measure
    from gradsync.results import write_whole

    _, results = _configured(options)
    answer = measure()
    write_whole(results / "benchmarks" / "planning.json", json.dumps(answer, indent=1) + "\n")
    if not answer["met"]:
        raise RunError(f"benchmark: a target was missed: see {results / 'benchmarks' / 'planning.json'}")
    return answer
