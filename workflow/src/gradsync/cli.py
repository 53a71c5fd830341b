"""The command line: its words. What they do is in `commands.py`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from gradsync import __version__, commands
from gradsync.commands import limits, machine_options, usage
from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline
from gradsync.slurm import rendezvous

LONGEST_LINE = 2000  # characters of a message


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0, 1 (a run or check failed) or 2 (bad input)."""
    parser = _parser()
    options = argparse.Namespace(json=False)
    try:
        told = limits.words(sys.argv[1:] if arguments is None else arguments)
        options = parser.parse_args(told)
        limits.refuse(options)
        rendezvous.adopt()
        _end_orderly("RANK" in os.environ)
        result = options.run(options)
        _show(result, options.json)
        for option in sorted(getattr(options, "twice", ())):
            print(f"gradsync: warning: {option} was given more than once: the last was taken", file=sys.stderr)
    except InputError as error:
        if os.environ.get("RANK", "0") == "0":  # all ranks were given the same: one says so
            print(f"gradsync: {_cut(str(error))}", file=sys.stderr)
        return 2
    except RunError as error:
        _show(error.result, options.json)
        print(f"gradsync: {_cut(str(error))}", file=sys.stderr)
        return 1
    except (RecursionError, MemoryError) as error:
        print(
            f"gradsync: the input is too large or too deep for this machine ({type(error).__name__})", file=sys.stderr
        )
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("gradsync: interrupted", file=sys.stderr)
        return 130
    return 0


def _cut(message: str) -> str:
    """The same, where a name in it is as long as a book without most of it."""
    lines = message.splitlines()
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..." for line in lines)


def _end_orderly(is_rank: bool) -> None:
    """End with whoever has started this command, and remove on the way out what it has made for itself alone."""
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and not is_rank and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)
    lifeline.follow(at_once=is_rank)


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _show(result: Any, as_json: bool) -> None:
    if result is not None:
        print(json.dumps(result, indent=1) if as_json else _text(result), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = usage.Parser(
        prog="gradsync",
        description="Plan, simulate, execute and compare gradient communication schemes of data-parallel training.",
        epilog="Exit status: 0, 1 a run or check failed, 2 bad input.",
    )
    parser.add_argument("--version", action="version", version=f"gradsync {__version__}")
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=usage.Parser)

    def command(run: Any) -> argparse.ArgumentParser:
        added = subcommands.add_parser(
            run.__name__,
            help=run.__doc__,
            description=run.__doc__,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        added.add_argument("--json", action="store_true", help="print the result as JSON")
        added.set_defaults(run=run)
        return added

    plan = command(commands.plan)
    _workload_and_cost(plan)
    plan.add_argument("--schedule", required=True, metavar="NAME", help="a schedule, or a scheme of --schemes")
    plan.add_argument("--schemes", metavar="FILE", help="file of named schemes, as config/schemes.yaml")
    plan.add_argument("--collective", metavar="NAME", help="that sums the gradients (default: the scheme's)")
    plan.add_argument(
        "--topology",
        metavar="NAME[:N,..]",
        help="of the collective: bcube, or bcube:3,2 (default: the scheme's, else the one that it is made for)",
    )
    plan.add_argument(
        "--ranks-a-node", type=int, metavar="N", help="ranks that share a node, where that is known (dense_gpu)"
    )
    plan.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the schedule")
    plan.add_argument("--lr", type=float, default=0.01, help="learning rate of the planned update")
    plan.add_argument("--momentum", type=float, default=0.0, help="momentum of the planned update")
    _steps(plan)
    _precision_and_statistics(plan)
    plan.add_argument("--output", type=Path, metavar="PLAN.json", help="write the plan")
    plan.add_argument("--prediction", type=Path, metavar="FILE.json", help="write what is printed with --json")

    check = command(commands.check)
    check.add_argument("plan", metavar="PLAN.json")

    simulate = command(commands.simulate)
    simulate.add_argument("--plan", required=True, metavar="PLAN.json")
    _workload_and_cost(simulate, ranks=False)
    simulate.add_argument(
        "--transfers",
        action="store_true",
        help="every transfer of the plan's collective on the links of its topology (--allreduce alpha=..,bandwidth=..)",
    )
    simulate.add_argument(
        "--point-to-point", metavar="a=SECONDS,b=SECONDS_PER_BYTE", help="cost of a send (default: a ring's)"
    )
    simulate.add_argument(
        "--gamma", metavar="SECONDS_PER_BYTE", help="of adding what is received (default: the workload's kernels)"
    )
    simulate.add_argument("--turns", type=int, help="iterations (default: until the period is steady)")
    simulate.add_argument("--output", type=Path, metavar="TRACE.json", help="write the trace")
    simulate.add_argument("--chrome", type=Path, metavar="FILE.json", help="write it for Perfetto or chrome://tracing")

    _collective(command(commands.collective))

    draw = command(commands.draw)
    draw.add_argument("input", type=Path, metavar="PLAN.json|TRACE.json")
    draw.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="its ending is the format: svg, pdf, png"
    )
    draw.add_argument("--workload", metavar="W.json", help="times for a plan (default: one unit an operation)")
    draw.add_argument("--allreduce", metavar="a=,b=|POINTS.csv", help="times for a plan's messages")
    draw.add_argument("--rank", type=int, action="append", help="only this rank (may be repeated)")
    draw.add_argument("--turn", type=int, help="only this iteration")

    train = command(commands.train)
    _model_and_data(train)
    train.add_argument("--ranks", type=int, default=2)
    _device(train)
    train.add_argument("--plan", type=Path, action="append", metavar="PLAN.json", help="a plan (may be repeated)")
    train.add_argument(
        "--schedule", action="append", metavar="NAME", help="measure, plan and train this scheme (may be repeated)"
    )
    train.add_argument("--schemes", metavar="FILE", help="file of named schemes for --schedule, as config/schemes.yaml")
    train.add_argument(
        "--peer", action="append", metavar="NAME", help="a variant of stock DDP to train beside (may be repeated)"
    )
    train.add_argument("--peers", default="config/peers.yaml", metavar="FILE", help="what --peer names")
    train.add_argument(
        "--references",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also run without communication, and on one rank alone",
    )
    train.add_argument("--epochs", type=int, default=2)
    train.add_argument("--iterations", type=int, default=0, help="stop after so many (0: whole epochs)")
    train.add_argument("--block", type=int, default=6, help="iterations before the next contender has its turn")
    train.add_argument("--lr", type=float, default=0.02, help="learning rate (--plan has its own; peers take it)")
    train.add_argument("--momentum", type=float, default=0.9, help="as --lr")
    _steps(train)
    _precision_and_statistics(train)
    train.add_argument("--seed", type=int, nargs="+", default=[0], help="one training of every contender for each")
    train.add_argument("--reference", default="wfbp", metavar="NAME", help="what ratios are to")
    train.add_argument(
        "--conformance", type=int, default=3, metavar="STEPS", help="steps that plans are held against the oracle"
    )
    train.add_argument(
        "--checkpoint-seconds", type=float, default=120.0, metavar="S", help="seconds between checkpoints"
    )
    train.add_argument("--paper", default="", metavar="KEY", help="the paper whose tables will show the runs")
    machine_options.on_testbed(train)
    train.add_argument("--output", type=Path, required=True, metavar="FOLDER")

    export = command(commands.export)
    export.add_argument("plan", metavar="PLAN.json")

    measure = command(commands.measure)
    what = ["layers", "allreduce", "contention", "interference", "launch", "operations", "replay"]
    measure.add_argument("what", choices=what)
    measure.add_argument(
        "--ranks",
        type=int,
        nargs="+",
        default=[1],
        metavar="N",
        help="ranks that work at the same time; allreduce: one or several numbers of them, a launch each",
    )
    _device(measure)
    measure.add_argument("--model", default="lenet5", help="the model (allreduce, contention: none)")
    measure.add_argument(
        "--size", type=int, metavar="PX", help="pixels of a side, or tokens (default: the model's own)"
    )
    measure.add_argument("--batch", type=int, default=32, help="samples a rank and iteration")
    measure.add_argument(
        "--teraflops", type=float, default=1.0, metavar="T", help="operations: 1e12 of them a second, to give seconds"
    )
    measure.add_argument("--iterations", type=int, default=20, help="layers, launch: iterations that are timed")
    measure.add_argument(
        "--smallest", type=int, default=1024, metavar="BYTES", help="allreduce, contention: smallest message"
    )
    measure.add_argument(
        "--largest", type=int, default=16 * 1024 * 1024, metavar="BYTES", help="allreduce, contention: largest message"
    )
    measure.add_argument("--lanes", type=int, default=2, metavar="K", help="contention: up to so many messages at once")
    measure.add_argument(
        "--collective",
        nargs="+",
        default=["native"],
        metavar="NAME[@TOPOLOGY]",
        help="allreduce, launch: native, the backend's own; bml, bml@bcube:3,2",
    )
    measure.add_argument(
        "--by-layer",
        action="store_true",
        help="allreduce with --workload: collectives but native carry single gradients: no longer message is measured",
    )
    machine_options.on_testbed(measure)
    measure.add_argument(
        "--workload",
        metavar="W.json",
        help="allreduce, interference: from its smallest gradient to all of them at once; contention: to half of them; "
        "replay: what is replayed",
    )
    measure.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="layers: the workload; allreduce: its points, CSV; contention: its points, JSON; interference: the "
        "factors, JSON; replay: the workload with the time of its update; launch: a folder, for layers, all-reduces, "
        "factors",
    )

    machine_options.image(command(commands.image))

    machine_options.cluster(command(commands.cluster))

    machine_options.slurm(command(commands.slurm))
    machine_options.testbed(command(commands.testbed))

    for run in (
        commands.estimate,
        commands.external,
        commands.count,
        commands.emulate,
        commands.table,
        commands.figure,
        commands.claims,
        commands.track,
        commands.benchmark,
    ):
        added = command(run)
        added.add_argument("--config", default="config/quick.yaml", metavar="FILE")
        added.add_argument(
            "--results", type=Path, metavar="FOLDER", help="(default: results/NAME of the configuration)"
        )
        if run is commands.benchmark:
            added.add_argument("what", choices=["planning", "training", "collectives", "workflow", "testbed"])
        if run is commands.count:
            added.add_argument("name", nargs="+", help="launches of `training` (lenet5-2), models (one sample)")
        if run is commands.emulate:
            added.add_argument("job", metavar="LAUNCH", help="of `emulated` in the configuration: googlenet-8, say")
        if run in (commands.table, commands.figure):
            added.add_argument("paper", help="mgwfbp, bml_bcube, ...")
            added.add_argument("id", nargs="+", help="as in the paper: table2, fig9a, ...")
    return parser


def _collective(parser: argparse.ArgumentParser) -> None:
    # numbers are read by the command, which says what is wrong with them
    parser.add_argument("name", metavar="NAME", help="ring, bml, ps_p2p, ...")
    parser.add_argument("--topology", metavar="NAME[:NUMBERS]", help="as bcube:3,2 (default: what it is made for)")
    parser.add_argument("--ranks", metavar="N", help="that fill the topology in order (default: all that it holds)")
    parser.add_argument("--bytes", required=True, metavar="M", help="of the message")
    parser.add_argument("--alpha", required=True, metavar="SECONDS", help="start-up of a round")
    parser.add_argument(
        "--bandwidth",
        required=True,
        metavar="BYTES_PER_SECOND|KIND=..,KIND=..",
        help="of a link, or of each kind of links (dense_gpu: inside, between)",
    )
    parser.add_argument("--latency", default="0", metavar="SECONDS|KIND=..", help="of a link, on top of alpha")
    parser.add_argument("--gamma", default="0", metavar="SECONDS_PER_BYTE", help="of adding")
    parser.add_argument("--check", action="store_true", help="also check symbolically that every rank gets the sum")


def _model_and_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="lenet5",
        help="of images: lenet5, resnet18, resnet50, resnet152, vgg19, googlenet, densenet201 or inceptionv4, of text: "
        "bert_base or transformer; smaller ones: resnet152_quarter, vgg19_eighth, densenet201_quarter, "
        "inceptionv4_quarter, bert_base_quarter, transformer_quarter",
    )
    parser.add_argument(
        "--size", type=int, metavar="PX", help="side of images, tokens of text (default: the model's own)"
    )
    parser.add_argument("--batch", type=int, default=32, help="samples a rank and iteration")
    parser.add_argument(
        "--data",
        default="digits",
        help="digits (scikit-learn's), mnist, cifar10, imagenet (from --data-folder), text (Python's documentation, or "
        "--data-folder) for bert_base, or synthetic",
    )
    parser.add_argument(
        "--data-folder",
        metavar="FOLDER",
        help="where mnist, cifar10 or imagenet lie; of text a file, or a folder of *.txt",
    )


def _device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="where ranks compute: cuda takes a GPU a rank, and NCCL",
    )


def _steps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accumulate",
        type=int,
        default=1,
        metavar="K",
        help="micro-batches a step: only the gradients of the last one's backward are sent",
    )
    parser.add_argument(
        "--clip-norm", type=float, metavar="X", help="clip the mean gradient to this norm (default: not clipped)"
    )


def _precision_and_statistics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision",
        choices=["float32", "bfloat16", "float16"],
        default="float32",
        help="of forward and backward; float16 with a loss scale that skips steps",
    )
    parser.add_argument(
        "--statistics",
        choices=["broadcast", "local"],
        default="broadcast",
        help="batch-norm statistics: rank 0's for all, as DDP by default, or each rank its own",
    )


def _workload_and_cost(parser: argparse.ArgumentParser, ranks: bool = True) -> None:
    parser.add_argument(
        "--workload", required=True, metavar="W.json|MODEL", help="layers in backward order; or a model of --cluster"
    )
    cost = parser.add_mutually_exclusive_group(required=True)
    cost.add_argument(
        "--allreduce",
        metavar="a=S,b=S_PER_BYTE|POINTS.csv|alpha=S,bandwidth=BYTES_PER_S",
        help="cost of an all-reduce: a line, measured bytes,seconds to fit, or start-up and bandwidth of the links, "
        "from which the scheme's collective on its topology is simulated",
    )
    cost.add_argument("--cluster", metavar="CLUSTER.yaml", help="a measured cluster: its all-reduces and layer times")
    parser.add_argument("--nodes", type=int, metavar="K", help="--cluster: on so many nodes (default: the fewest)")
    parser.add_argument(
        "--scale", action="store_true", help="--cluster: where that number of ranks was not measured, scale as a ring"
    )
    parser.add_argument(
        "--interference", metavar="FILE.json", help="how computation and messages slow one another down, as measured"
    )
    several = parser.add_mutually_exclusive_group()
    several.add_argument(
        "--contention", metavar="FILE.json", help="what several messages at once take, as measured (native collective)"
    )
    several.add_argument(
        "--capacity",
        type=float,
        metavar="X",
        help="messages at once that the link carries as fast as one alone, at least 1 (default: 1, they share it)",
    )
    if ranks:
        parser.add_argument("--ranks", type=int, default=2, help="ranks of the plan")


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
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(f"{indent}{key}:")
            for row in value:
                cells = (
                    f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if v is not None
                )
                lines.append(f"{indent}  " + ", ".join(cells))
        elif isinstance(value, float):
            lines.append(f"{indent}{key}: {value:.6g}")
        elif isinstance(value, list):
            lines.append(f"{indent}{key}: {', '.join(map(str, value)) or 'none'}")
        else:
            lines.append(f"{indent}{key}: {value}")
    return "\n".join(line for line in lines if line)
