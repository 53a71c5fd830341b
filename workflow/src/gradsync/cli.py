"""The command line. Modules that a subcommand does not need are not imported: `gradsync plan` never loads torch."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from gradsync import __version__
from gradsync.errors import InputError, RunError


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0, 1 (a run or check failed) or 2 (bad input)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        result = options.run(options)
    except InputError as error:
        print(f"gradsync: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"gradsync: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("gradsync: interrupted", file=sys.stderr)
        return 130
    if result is not None:
        print(json.dumps(result, indent=1) if options.json else _text(result))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradsync",
        description="Plan, simulate, execute and compare gradient communication schemes of data-parallel training.",
        epilog="Exit status: 0, 1 a run or check failed, 2 bad input.",
    )
    parser.add_argument("--version", action="version", version=f"gradsync {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        added.add_argument("--json", action="store_true", help="print the result as JSON")
        added.set_defaults(run=run)
        return added

    plan = command("plan", _plan, "Plan a workload under a schedule and predict its iteration.")
    _workload_and_cost(plan)
    plan.add_argument("--schedule", required=True, metavar="NAME", help="a schedule, or a scheme of --schemes")
    plan.add_argument("--schemes", metavar="FILE", help="file of named schemes, as config/schemes.yaml")
    plan.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the schedule")
    plan.add_argument("--lr", type=float, default=0.01, help="learning rate of the planned update")
    plan.add_argument("--momentum", type=float, default=0.0, help="momentum of the planned update")
    plan.add_argument("--output", type=Path, metavar="PLAN.json", help="write the plan")
    plan.add_argument("--prediction", type=Path, metavar="FILE.json", help="write what is printed with --json")

    simulate = command("simulate", _simulate, "Time a plan on a workload and a network.")
    simulate.add_argument("--plan", required=True, metavar="PLAN.json")
    _workload_and_cost(simulate, ranks=False)
    simulate.add_argument(
        "--point-to-point", metavar="a=SECONDS,b=SECONDS_PER_BYTE", help="cost of a send (default: a ring's)"
    )
    simulate.add_argument("--turns", type=int, help="iterations (default: until the period is steady)")
    simulate.add_argument("--output", type=Path, metavar="TRACE.json", help="write the trace")
    simulate.add_argument("--chrome", type=Path, metavar="FILE.json", help="write it for Perfetto or chrome://tracing")

    draw = command("draw", _draw, "Draw a plan or a trace as a timeline.")
    draw.add_argument("input", type=Path, metavar="PLAN.json|TRACE.json")
    draw.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="its ending is the format: svg, pdf, png"
    )
    draw.add_argument("--workload", metavar="W.json", help="times for a plan (default: one unit an operation)")
    draw.add_argument("--allreduce", metavar="a=,b=|POINTS.csv", help="times for a plan's messages")
    draw.add_argument("--rank", type=int, action="append", help="only this rank (may be repeated)")
    draw.add_argument("--turn", type=int, help="only this iteration")

    train = command("train", _train, "Train a model on real ranks of this machine, under one plan or several in turn.")
    train.add_argument("--model", default="lenet5", help="lenet5 or resnet50")
    train.add_argument("--data", default="digits", help="digits: the handwritten digits of scikit-learn")
    train.add_argument("--ranks", type=int, default=2)
    train.add_argument("--plan", type=Path, action="append", metavar="PLAN.json", help="a plan (may be repeated)")
    train.add_argument(
        "--schedule", action="append", metavar="NAME", help="measure, plan and train this schedule (may be repeated)"
    )
    train.add_argument("--batch", type=int, default=32, help="samples a rank and iteration")
    train.add_argument("--epochs", type=int, default=2)
    train.add_argument("--block", type=int, default=6, help="iterations before the next plan has its turn")
    train.add_argument("--lr", type=float, default=0.02, help="learning rate (with --schedule)")
    train.add_argument("--momentum", type=float, default=0.9, help="momentum (with --schedule)")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--output", type=Path, required=True, metavar="FOLDER")

    measure = command("measure", _measure, "Measure this machine: layer times of a model, or all-reduce times.")
    measure.add_argument("what", choices=["layers", "allreduce"])
    measure.add_argument("--ranks", type=int, default=1, help="ranks that work at the same time")
    measure.add_argument("--model", default="lenet5", help="layers: the model")
    measure.add_argument("--batch", type=int, default=32, help="layers: samples an iteration")
    measure.add_argument("--iterations", type=int, default=10, help="layers: iterations that are timed")
    measure.add_argument(
        "--largest", type=int, default=16 * 1024 * 1024, metavar="BYTES", help="allreduce: largest message"
    )
    measure.add_argument("--smallest", type=int, default=1024, metavar="BYTES", help="allreduce: smallest message")
    measure.add_argument(
        "--workload", metavar="W.json", help="allreduce: from its smallest gradient to all of them in one message"
    )
    measure.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="a workload, or points bytes,seconds"
    )

    for name, run, text in (
        ("external", _external, "Obtain the third-party logs of a configuration and check their SHA-256."),
        ("table", _table, "Compute a table of a paper and write it as CSV, Markdown and LaTeX."),
        ("figure", _figure, "Draw a figure of a paper from its table, as SVG and PDF, with its data as CSV."),
        ("claims", _claims, "Decide every claim of the papers on the tables that are there."),
        ("track", _track, "Import all results into MLflow; what is there already stays as it is."),
        ("benchmark", _benchmark, "Time planning and simulating and hold them against their targets."),
    ):
        added = command(name, run, text)
        added.add_argument("--config", default="config/quick.yaml", metavar="FILE")
        added.add_argument(
            "--results", type=Path, metavar="FOLDER", help="(default: results/NAME of the configuration)"
        )
        if name in ("table", "figure"):
            added.add_argument("paper", help="mgwfbp")
            added.add_argument("id", help="as in the paper: table2, fig9a, ...")
    return parser


def _workload_and_cost(parser: argparse.ArgumentParser, ranks: bool = True) -> None:
    parser.add_argument("--workload", required=True, metavar="W.json", help="layers in backward order; see the README")
    parser.add_argument(
        "--allreduce",
        required=True,
        metavar="a=SECONDS,b=SECONDS_PER_BYTE|POINTS.csv",
        help="cost of an all-reduce: a line, or measured bytes,seconds to fit",
    )
    if ranks:
        parser.add_argument("--ranks", type=int, default=2, help="ranks of the plan")


def _cost(text: str) -> Any:
    """An all-reduce cost from the command line."""
    from gradsync.costs import Linear, fitted

    pairs = dict(re.findall(r"(\w+)=([^,]*)", text)) if "=" in text and not Path(text).is_file() else None
    if pairs is None:
        sizes, times = fitted.load_points(text)
        return fitted.fit(sizes, times, source=text)
    if set(pairs) != {"a", "b"} or text.count("=") != 2:
        raise InputError(f"--allreduce {text}: give a=SECONDS,b=SECONDS_PER_BYTE, or a CSV file of bytes,seconds")
    try:
        return Linear(float(pairs["a"]), float(pairs["b"]), "given")
    except ValueError:
        raise InputError(f"--allreduce {text}: a and b must be numbers") from None


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
        "iteration_seconds": trace.iteration_seconds(),
        "exposed_communication_seconds": trace.exposed_communication_seconds(),
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


def _plan(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync import schemes
    from gradsync.check import check
    from gradsync.results import write_whole
    from gradsync.workload import Workload

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


def _simulate(options: argparse.Namespace) -> dict[str, Any]:
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
        network = Network({**network.costs, "send": _cost(options.point_to_point)})
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
        "iteration_seconds": trace.iteration_seconds(),
        "exposed_communication_seconds": trace.exposed_communication_seconds(),
        "lower_bound_seconds": lower_bound_seconds(workload, network),
    }


def _draw(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.render import timeline

    text = _read(options.input, "input")
    cost = _cost(options.allreduce) if options.allreduce else None
    trace = timeline.load(text, str(options.input), options.workload, cost)
    timeline.draw(trace, options.output, ranks=options.rank, turn=options.turn)
    return {"drawn": str(options.output), "ranks": len(trace.ranks), "spans": len(trace.spans)}


def _train(options: argparse.Namespace) -> dict[str, Any] | None:
    import tempfile

    from gradsync.plan import Plan
    from gradsync.runtime.launch import is_rank, launch, room_for

    if is_rank():
        _train_rank(options)
        return None
    room_for(options.ranks, "--ranks")
    for key in ("batch", "epochs"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key} {getattr(options, key)}: at least 1")
    if options.block < 2:
        raise InputError(f"--block {options.block}: at least 2, since the first iteration of a block is not timed")
    if bool(options.plan) == bool(options.schedule):
        raise InputError("give either --plan (files) or --schedule (names; measured and planned first)")
    with tempfile.TemporaryDirectory(prefix="gradsync-") as folder:
        if options.schedule:
            options.plan = _planned_here(options, Path(folder))
        for path in options.plan:
            plan = Plan.from_json(_read(path, "plan"), str(path))
            if plan.ranks != options.ranks:
                raise InputError(f"plan {path} is for {plan.ranks} ranks, --ranks is {options.ranks}")
        keys = ("model", "data", "ranks", "batch", "epochs", "block", "seed", "output")
        command = ["train", *(part for key in keys for part in (f"--{key}", str(getattr(options, key))))]
        launch([*command, *(part for path in options.plan for part in ("--plan", str(path)))], options.ranks)
    from gradsync.results import Result

    names = json.loads((options.output / "schemes.json").read_text())
    return {name: Result.load(options.output / name / "result.json").summary for name in names}


def _planned_here(options: argparse.Namespace, folder: Path) -> list[Path]:
    """Measure this machine and plan the schedules."""
    workload, points = folder / "workload.json", folder / "allreduce.csv"
    base = ["--ranks", str(options.ranks)]
    model = ["--model", options.model, "--batch", str(options.batch)]
    _measure(_parser().parse_args(["measure", "layers", *base, *model, "--output", str(workload)]))
    sizes = ["--workload", str(workload)]
    _measure(_parser().parse_args(["measure", "allreduce", *base, *sizes, "--output", str(points)]))
    plans = []
    for name in options.schedule:
        plans.append(folder / f"{name}.json")
        told = ["--lr", str(options.lr), "--momentum", str(options.momentum), "--output", str(plans[-1])]
        _plan(
            _parser().parse_args(
                ["plan", *base, *told, "--workload", str(workload), "--allreduce", str(points), "--schedule", name]
            )
        )
    return plans


def _train_rank(options: argparse.Namespace) -> None:
    from gradsync.plan import Plan
    from gradsync.runtime.group import process_group
    from gradsync.runtime.train import Options, train

    plans = [Plan.from_json(_read(path, "plan"), str(path)) for path in options.plan]
    with process_group() as (rank, ranks):
        chosen = Options(options.model, options.data, options.batch, options.epochs, options.block, options.seed)
        train(plans, chosen, options.output, rank, ranks)


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    from gradsync.runtime.launch import is_rank, launch, room_for
    from gradsync.workload import Workload

    if not is_rank():
        room_for(options.ranks, "--ranks")
        if options.what == "allreduce" and options.ranks < 2:
            raise InputError("measure allreduce: --ranks must be at least 2")
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


def _external(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.measure import third_party

    loaded, results = _configured(options)
    return third_party.obtain(loaded.external_data, results / "external")


def _table(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.papers import compute
    from gradsync.render import tables

    loaded, results = _configured(options)
    table = compute(options.paper, options.id, loaded, results)
    return {"rows": len(table.frame), "written": tables.write(table, results / "tables" / options.paper, options.id)}


def _figure(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.render import figures

    loaded, results = _configured(options)
    return {"written": figures.write(options.paper, options.id, loaded, results)}


def _claims(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync import claims
    from gradsync.results import write_whole

    loaded, results = _configured(options)
    verdicts = [verdict for paper in loaded.papers for verdict in claims.evaluate(Path(paper), results / "tables")]
    write_whole(results / "claims.json", claims.ledger_json(verdicts))
    write_whole(results / "claims.md", claims.ledger_markdown(verdicts))
    counts: dict[str, Any] = {}
    for verdict in verdicts:
        counts[verdict.verdict] = counts.get(verdict.verdict, 0) + 1
    return counts


def _track(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.record.tracking import import_results

    loaded, results = _configured(options)
    return import_results(loaded.mlflow, results)


def _benchmark(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.measure.planning_speed import measure
    from gradsync.results import write_whole

    _, results = _configured(options)
    answer = measure()
    write_whole(results / "benchmarks" / "planning.json", json.dumps(answer, indent=1) + "\n")
    if not answer["met"]:
        raise RunError(f"benchmark: a target was missed: see {results / 'benchmarks' / 'planning.json'}")
    return answer


def _text(result: Any, indent: str = "") -> str:
    """Keys and values for people; long lists shortened."""
    lines = []
    for key, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", _text(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], list):
            lines.append(f"{indent}{key}: {len(value)}")
            for number, message in enumerate(value[:20]):
                names = f"{message[0]} .. {message[-1]}" if len(message) > 1 else message[0]
                lines.append(f"{indent}  {number}: {len(message)} tensor(s), {names}")
            if len(value) > 20:
                lines.append(f"{indent}  ... {len(value) - 20} more (--json shows all)")
        elif isinstance(value, float):
            lines.append(f"{indent}{key}: {value:.6g}")
        elif isinstance(value, list):
            lines.append(f"{indent}{key}: {', '.join(map(str, value)) or 'none'}")
        else:
            lines.append(f"{indent}{key}: {value}")
    return "\n".join(line for line in lines if line)
