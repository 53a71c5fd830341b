"""Bad input, seeded: every subcommand and every position of every configuration. Run it longer as a program:

PYTHONPATH=workflow/src:tests python tests/fuzz.py --inputs 10000 --seed 1

It prints how many inputs were refused, accepted, ended in a traceback, or did not end within LIMIT_SECONDS.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from gradsync import cli, clusters, peers, published, schemes, settings
from gradsync.errors import InputError
from hostile import HOSTILE, changed, positions

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 60
CONFIGURED = ("table", "figure", "claims", "estimate", "emulate")
NUMBERS = [-1, 0, 1, 2, 1 << 31, 1 << 64, 10**30, 10**5000, -0.5, 1e308, float("inf"), float("-inf"), float("nan")]
ODD = [*HOSTILE, *NUMBERS, None, True, [], {}, [[]], {"a": {}}, "x" * 5000, "\ud800", "/dev/zero", "/dev/full"]
READERS: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys(("quick", "full", "emulated", "modern", "simultaneous"), settings.load),
    "schemes": schemes.load,
    "peers": peers.load,
    "papers/mgwfbp": published.load,
    "papers/bml_bcube": published.load,
    "papers/ascwfbp": published.load,
    "clusters/k80-10gbe": clusters.load,
}
WORKLOAD = "config/workloads/counterexample.json"
COMMANDS = [
    ["plan", "--workload", WORKLOAD, "--allreduce", "a=1,b=1", "--schedule", "wfbp", "--ranks", "2", "--lr", "0.1"],
    ["plan", "--workload", WORKLOAD, "--allreduce", "alpha=1,bandwidth=9", "--schedule", "ring", "--accumulate", "2"],
    ["simulate", "--plan", "PLAN", "--workload", WORKLOAD, "--allreduce", "a=1,b=1", "--turns", "3"],
    ["check", "PLAN"],
    ["export", "PLAN"],
    ["draw", "PLAN", "--output", "drawn.svg", "--rank", "0"],
    ["collective", "bml", "--topology", "bcube:3,2", "--bytes", "9", "--alpha", "1", "--bandwidth", "9"],
    ["cluster", "show", "config/clusters/k80-10gbe.yaml"],
    ["cluster", "assemble", "x", "--part", WORKLOAD],
    ["train", "--ranks", "0", "--peer", "ddp", "--output", "trained"],
    ["measure", "layers", "--ranks", "0", "--output", "measured"],
    ["image", "cpu", "--base", "/proc", "--output", "x.sif"],
    ["slurm", "why", "PLAN"],
    *([name, *(["mgwfbp", "table2"] if name in ("table", "figure") else ["x"] if name == "emulate" else [])]
      for name in CONFIGURED),
]  # fmt: skip
KEPT = ("train", "measure", "image")  # refused as they stand: changed, they must not start anything that takes minutes


class EndlessError(BaseException):
    """An input that did not end."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raises EndlessError far beyond what any machine needs."""

    def ended(*_: object) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(run: Callable[[], Any]) -> tuple[str, str]:
    """(refused, accepted, traceback or no end; what was said)."""
    said = io.StringIO()
    try:
        with limited(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            status = run()
    except InputError as error:
        return "refused", str(error)
    except SystemExit as error:
        return ("accepted" if not error.code else "refused"), said.getvalue()
    except EndlessError:
        return "no end", ""
    except BaseException:
        return "traceback", traceback.format_exc()
    return ("accepted" if status in (0, None) or not isinstance(status, int) else "refused"), said.getvalue()


def word(chance: random.Random) -> str:
    value = chance.choice(ODD if chance.random() < 0.7 else [0.5, 1, 2, 3, 64])
    return "9" * 5000 if value == 10**5000 else str(value)


def command(chance: random.Random, plan: Path) -> list[str]:
    """A command line of which one word is odd, or one is missing, or one there twice."""
    words = [str(plan) if each == "PLAN" else each for each in chance.choice(COMMANDS)]
    places = [i for i in range(1, len(words)) if words[0] not in KEPT or words[i - 1] not in ("--ranks", "--base")]
    if not places:
        return words
    place = chance.choice(places)
    match chance.randrange(12):
        case 0:
            del words[place]
        case 1:
            words.insert(place, words[place])
        case 2:
            words[place] = word(chance)
        case _:  # a value, as most mistakes are: options stay what they are
            values = [i for i in places if not words[i].startswith("-")]
            words[chance.choice(values or places)] = word(chance)
    return words


def content(chance: random.Random, original: Any, write: Callable[[Any], str]) -> str:
    """A file of which one position is odd; whole, or with damaged text."""
    place = chance.choice(list(positions(original)))
    value = chance.choice([each for each in ODD if each != 10**5000 and each != "\ud800"])
    text = write(changed(original, place, value))
    if chance.random() < 0.2:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(["\0", "[" * 5000, "&a [*a]", "\t", "2021-13-45", "? ", "- "]) + text[at:]
    return text


def read_by_a_command(name: str) -> Callable[[Path], Any]:
    """What reads a plan or a workload: a command that does all with it that needs no ranks."""
    if name == "plan.json":
        return lambda path: cli.main(["simulate", "--plan", str(path), *COMMANDS[0][1:5]])
    return lambda path: cli.main(["plan", "--workload", str(path), *COMMANDS[0][3:]])


def campaign(inputs: int, seed: int) -> tuple[Counter[tuple[str, str]], list[tuple[str, Any, str]]]:
    """((subcommand or file, outcome) -> inputs; those that failed, each with what was said)."""
    chance, counts, failed = random.Random(seed), Counter[tuple[str, str]](), []
    originals = {name: yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text()) for name in READERS}
    originals["workload.json"] = json.loads((ROOT / WORKLOAD).read_text())
    with tempfile.TemporaryDirectory() as folder:
        scratch, before = Path(folder), Path.cwd()
        for name in ("config", "reports"):
            (scratch / name).symlink_to(ROOT / name)
        os.chdir(scratch)
        try:
            plan = scratch / "plan.json"
            cli.main([*COMMANDS[0], "--output", str(plan)])
            originals["plan.json"] = json.loads(plan.read_text())
            for _ in range(inputs):
                if chance.random() < 0.5:
                    words = command(chance, plan)
                    name, tried = words[0], words
                    how, said = outcome(lambda words=words: cli.main(words))
                else:
                    name = chance.choice(list(originals))
                    of_json = name.endswith(".json")
                    tried = content(chance, originals[name], json.dumps if of_json else yaml.safe_dump)
                    path = scratch / f"changed-{Path(name).stem}.{'json' if of_json else 'yaml'}"
                    path.write_text(tried, errors="replace")
                    read = read_by_a_command(name) if of_json else READERS[name]
                    how, said = outcome(lambda read=read, path=path: read(path))
                counts[name, how] += 1
                if how in ("traceback", "no end"):
                    failed.append((name, tried, said))
        finally:
            os.chdir(before)
    return counts, failed


def table(counts: Counter[tuple[str, str]]) -> str:
    """Inputs by what they went to and how they ended."""
    outcomes = ("refused", "accepted", "traceback", "no end")
    rows = [f"{'':22}" + "".join(f"{how:>11}" for how in outcomes)]
    for name in [*sorted({name for name, _ in counts}), "all"]:
        found = [sum(n for (of, how), n in counts.items() if how == each and name in (of, "all")) for each in outcomes]
        rows.append(f"{name:22}" + "".join(f"{number:11}" for number in found))
    return "\n".join(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    counted, wrong = campaign(chosen.inputs, chosen.seed)
    for of, tried_, said_ in wrong:
        print(of, json.dumps(tried_)[:2000], said_[-3000:], sep="\n", file=sys.stderr)
    print(table(counted))
    sys.exit(bool(wrong))
