"""Command lines with one odd word: its place comes from the parsers, so that a new option is tried unlisted."""

from __future__ import annotations

import argparse
from typing import Any

from hypothesis import strategies as st

from fuzz.values import words as odd_words
from gradsync import cli

LINE = ("--workload", "workload.json", "--allreduce", "a=1,b=1")
LINKS = ("--workload", "workload.json", "--allreduce", "alpha=1,bandwidth=9")
OF_CONFIGURATION = ("--config", "config.yaml", "--results", "results")
# subcommand -> arguments that it accepts, in a folder with the files of `files.py`
BASES: dict[str, list[tuple[str, ...]]] = {
    "advise": [
        (*LINE, "--ranks", "2", "--output", "made.json", "--picture", "drawn.svg"),
        (*LINKS, "--ranks", "4", "--topology", "bcube:2,2"),
        ("--workload", "workload.json", "--network", "25gbe,nvlink2", "--ranks", "2x4", "--output", "made.json"),
    ],
    "plan": [
        (*LINE, "--schedule", "wfbp", "--ranks", "2", "--lr", "0.1", "--output", "made.json"),
        (*LINE, "--schedule", "mgwfbp", "--ranks", "4", "--interference", "interference.json", "--output", "made.json"),
        (
            *LINE,
            "--schedule",
            "kway",
            "--option",
            "lanes=2",
            "--contention",
            "contention.json",
            "--output",
            "made.json",
        ),
        (*LINE, "--schedule", "ascwfbp", "--ranks", "2", "--capacity", "1.5", "--output", "made.json"),
        (*LINE, "--schemes", "config/schemes.yaml", "--schedule", "mgwfbp", "--output", "made.json"),
        (*LINKS, "--schedule", "ring", "--ranks", "4", "--accumulate", "2", "--output", "made.json"),
        (*LINKS, "--schedule", "wfbp", "--collective", "bml", "--topology", "bcube:3,2", "--ranks", "9"),
        ("--workload", "workload.json", "--allreduce", "points.csv", "--schedule", "optimal", "--output", "made.json"),
        ("--workload", "net", "--cluster", "cluster.yaml", "--schedule", "single", "--ranks", "4", "--nodes", "2"),
    ],
    "simulate": [
        ("--plan", "plan.json", *LINE, "--turns", "3", "--output", "simulated.json", "--chrome", "chrome.json"),
        ("--plan", "ring.json", *LINKS, "--transfers", "--gamma", "1"),
        ("--plan", "plan.json", *LINE, "--point-to-point", "a=1,b=1", "--interference", "interference.json"),
    ],
    "check": [("plan.json",), ("ring.json",)],
    "export": [
        ("plan.json",),
        ("plan.json", "--format", "chakra", "--workload", "workload.json", "--output", "made", "--turns", "3"),
    ],
    "import": [
        ("recorded.json", "--output", "made.json", "--warm-up", "2", "--name", "net"),
        ("rank0.json", "rank1.json", "--output", "made.json", "--points", "made.csv"),
        ("plan.0.et", "--output", "made.json"),
    ],
    "draw": [
        ("plan.json", "--output", "drawn.svg", "--rank", "0", "--turn", "1"),
        ("trace.json", "--output", "drawn.svg"),
        ("plan.json", "--output", "drawn.svg", *LINE),
    ],
    "collective": [
        ("bml", "--topology", "bcube:3,2", "--bytes", "9", "--alpha", "1", "--bandwidth", "9", "--check"),
        ("ring", "--ranks", "8", "--bytes", "9", "--alpha", "1", "--bandwidth", "9", "--gamma", "1", "--latency", "1"),
    ],
    "parts": [("--times", "times.json"), ("--times", "times.json", "--chip", "chip.yaml", "--parts", "1", "4")],
    "cluster measure": [("here", "--ranks", "2", "--models", "lenet5:batch=4", "--output", "measured.yaml")],
    "cluster show": [("cluster.yaml",)],
    "cluster assemble": [("put", "--part", "nodes.json", "--workload", "layers.json", "--output", "put.yaml")],
    "train": [
        ("--plan", "plan.json", "--ranks", "2", "--output", "trained", "--data", "synthetic"),
        ("--peer", "ddp", "--ranks", "2", "--output", "trained", "--data", "synthetic", "--seed", "1", "2"),
        ("--schedule", "wfbp", "--schemes", "config/schemes.yaml", "--output", "trained", "--data", "synthetic"),
        ("--peer", "ddp", "--testbed", "switch", "--rate", "4e8", "--output", "trained", "--data", "synthetic"),
    ],
    "elastic": [("--plan", "plan.json", "--output", "trained", "--data", "synthetic")],
    "measure layers": [("--ranks", "1", "--output", "measured.json")],
    "measure operations": [("--batch", "2", "--output", "measured.json")],
    "measure allreduce": [
        ("--ranks", "2", "--collective", "bml@bcube:2,1", "--output", "measured.csv"),
        ("--ranks", "2", "--testbed", "testbed.json", "--output", "measured.csv"),
    ],
    "measure contention": [("--ranks", "2", "--lanes", "2", "--output", "measured.json")],
    "measure interference": [("--ranks", "2", "--workload", "workload.json", "--output", "measured.json")],
    "measure launch": [("--ranks", "2", "--batch", "2", "--output", "measured")],
    "measure loading": [("--model", "resnet18", "--size", "32", "--batch", "2", "--output", "measured")],
    "measure parts": [("--parts", "1", "--batch", "2", "--iterations", "2", "--output", "measured.json")],
    "measure ratios": [("--ranks", "2", "--workload", "layers.json", "--output", "measured.json")],
    "measure replay": [("--ranks", "2", "--workload", "layers.json", "--output", "measured.json")],
    "measure topk": [("--elements", "100", "7", "--rounds", "2", "--output", "measured.json")],
    "image": [("base", "--output", "made.sif", "--log", "made.log"), ("cpu", "--check")],
    "slurm start": [("--folder", "slurm", "--nodes", "2")],
    "slurm stop": [("--folder", "slurm")],
    "slurm status": [("--folder", "slurm")],
    "slurm check": [("--nodes", "1", "--cpus", "1")],
    "slurm why": [("snakemake.log",)],
    "testbed check": [("--rate", "4e8", "--output", "testbed-check.json")],
    "testbed clean": [()],
    "estimate": [OF_CONFIGURATION],
    "external": [OF_CONFIGURATION],
    "count": [(*OF_CONFIGURATION, "lenet5")],
    "emulate": [(*OF_CONFIGURATION, "googlenet-2")],
    "table": [(*OF_CONFIGURATION, "mgwfbp", "table2")],
    "figure": [(*OF_CONFIGURATION, "ascwfbp", "fig3")],
    "claims": [OF_CONFIGURATION],
    "site": [OF_CONFIGURATION],
    "compare": [("run", "run")],
    "publish": [OF_CONFIGURATION],
    "artifact": [OF_CONFIGURATION],
    "track": [OF_CONFIGURATION],
    "benchmark": [(*OF_CONFIGURATION, "training")],
}
# subcommands that compute for minutes in this process itself, each with the audit event at which its work begins
BEGINS = {"benchmark": "tempfile.mkdtemp", "measure loading": "tempfile.mkdtemp", "track": "import"}


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Every subcommand, and subcommand of one, with its parser."""

    def below(parser: argparse.ArgumentParser, name: str) -> dict[str, argparse.ArgumentParser]:
        subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not subparsers:
            return {name: parser}
        pairs = [below(each, f"{name} {word}".strip()) for word, each in subparsers[0].choices.items()]
        return {key: each for pair in pairs for key, each in pair.items()}

    return below(cli._parser(), "")


def places() -> dict[str, list[argparse.Action]]:
    """Every option and every other argument of every subcommand."""
    return {
        name: [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
        for name, parser in parsers().items()
    }


def base(name: str, arguments: tuple[str, ...]) -> list[str]:
    """The command line of a base; its result as JSON, to be judged."""
    return [*name.split(), *arguments, "--json"]


@st.composite
def lines(draw: Any) -> list[str]:
    """A command line that is right but for one place, or that has a word missing, odd, or twice."""
    name = draw(st.sampled_from([name for name in BASES for _ in BASES[name]]))
    action = draw(st.sampled_from(PLACES[name]))
    line = base(name, draw(st.sampled_from(BASES[name])))
    first = len(name.split())
    how = draw(st.sampled_from(["value"] * 9 + ["missing", "odd", "twice"]))
    place = draw(st.integers(first, len(line) - 1))
    if how == "missing":
        del line[place]
    elif how == "twice":
        line.insert(place, line[place])
    elif how == "odd":
        line[place] = draw(odd_words)
    else:
        _give(draw, line, first, action)
    return line


def _give(draw: Any, line: list[str], first: int, action: argparse.Action) -> None:
    """Put the action, with a value, into `line`; if the action is there, replace its value."""
    if action.nargs == 0:
        line.append(draw(st.sampled_from(action.option_strings)))
        return
    value = draw(st.one_of(st.sampled_from(sorted(action.choices)), odd_words) if action.choices else odd_words)
    positions = [i for i, word in enumerate(line) if word in action.option_strings]
    if positions:
        line[positions[0] + 1] = value
    elif action.option_strings:
        more = [draw(odd_words)] if action.nargs in ("+", "*") and draw(st.booleans()) else []
        line += [action.option_strings[-1], value, *more]
    elif first < len(line) - 1:
        options = {i for i, word in enumerate(line) if word.startswith("--")}
        free = [i for i in range(first, len(line)) if i not in options and i - 1 not in options]
        line[draw(st.sampled_from(free)) if free else first] = value
    else:
        line.insert(first, value)


PLACES = places()
