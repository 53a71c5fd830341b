"""The command line: lists the commands, reads its words, prints what a command returns, and ends with a status."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from typing import Any

from gradsync import __version__
from gradsync.commands import COMMANDS, limits, parsing, usage
from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline
from gradsync.slurm import rendezvous

LONGEST_LINE = 2000  # characters of a message


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0, 1 (a run or check failed) or 2 (bad input)."""
    parser = _parser()
    options = argparse.Namespace(json=False)
    try:
        options = parser.parse_args(limits.words(sys.argv[1:] if arguments is None else arguments))
        limits.refuse(options)
        rendezvous.adopt()
        _end_orderly("RANK" in os.environ)
        result = options.run(options)
        _show(result, options.json)
        for option in sorted(getattr(options, "repeated_options", ())):
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
    """The same message, without most of a line as long as a book."""
    lines = message.splitlines()
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..." for line in lines)


def _end_orderly(is_rank: bool) -> None:
    """End with whoever has started this command, and remove on the way out what it keeps for itself alone."""
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
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2].removesuffix("_")  # `import` is a word of Python
        subparser = subcommands.add_parser(name, **parsing.described(command.run))
        subparser.add_argument("--json", action="store_true", help="print the result as JSON")
        subparser.set_defaults(run=command.run)
        command.options(subparser)
    return parser


def _text(result: Any, indent: str = "") -> str:
    """Keys and values for people; long lists shortened."""
    lines = []
    for key, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", _text(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], list):
            lines.append(f"{indent}{key}: {len(value)}")
            for number, message in enumerate(value[:20]):
                tensors = f"{message[0]} .. {message[-1]}" if len(message) > 1 else message[0]
                lines.append(f"{indent}  {number}: {len(message)} tensor(s), {tensors}")
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
