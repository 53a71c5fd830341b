"""Runs inputs one after another in this process: how each ends, what was wrong with it, what took long to be refused.

Hypothesis draws them: values that people would not think of, the same ones for the same seed. It does not shrink them,
since nothing fails while they are drawn: all that is wrong is collected, with a corpus file for each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz import judge
from fuzz.commands import BASES, BEGINS, base, lines
from fuzz.files import CHANGED, Kind, kinds, prepare, texts
from fuzz.guard import EndlessError, StartedError, guarded
from gradsync import cli
from gradsync.lifetimes import leftovers

CORPUS = Path(__file__).parents[1] / "corpus"
SLOW_SECONDS = 2.0  # of this process's processor time, to be refused
OUTCOMES = ("refused", "accepted", "wrong", "traceback", "no end")
BAD = ("wrong", "traceback", "no end")


class Case(NamedTuple):
    """A command line; if it reads a file, `text` is the content of the file `name` below CHANGED."""

    name: str
    words: list[str]
    text: str | None = None

    def to_json(self) -> str:
        """The case as a file of the corpus."""
        return json.dumps(self._asdict(), indent=1) + "\n"


class Ending(NamedTuple):
    """How a case ended: one of OUTCOMES, a message, processor seconds, growth of memory."""

    how: str
    message: str
    seconds: float
    kilobytes: int


class Campaign:
    """Tries inputs in a folder of its own, the current one meanwhile, and collects what became of them."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.slow: list[tuple[Case, Ending]] = []
        self.failed: list[tuple[Case, Ending]] = []
        self.files: dict[str, Kind] = {}

    @contextlib.contextmanager
    def prepared(self) -> Iterator[Campaign]:
        """Go into a folder with the files that inputs name."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, contextlib.chdir(folder):
            place = Path(folder)
            # other processes leave nothing in this folder
            with mock.patch.object(leftovers, "MEMORY", place), mock.patch.object(tempfile, "tempdir", folder):
                prepare(place)
                self.files = kinds(place)
                yield self

    def warm_up(self) -> list[tuple[Case, Ending]]:
        """Try every right subcommand and file once, so that imports cost no input time; gives those not accepted."""
        cases = [Case(name, base(name, arguments)) for name, every in BASES.items() for arguments in every]
        cases += [self.of_file(name, kind.write(kind.content)) for name, kind in self.files.items()]
        ended = [(case, tried(case)) for case in cases]
        return [(case, ending) for case, ending in ended if ending.how != "accepted"]

    def of_file(self, name: str, text: str) -> Case:
        """The command that reads a file, with this text in it."""
        return Case(name, list(self.files[name].read), text)

    def run(self, inputs: int, seed: int) -> None:
        """Try `inputs` inputs, half of them command lines, half of them files."""
        cases = st.one_of(
            lines().map(lambda words: Case(_subcommand(words), words)),
            texts(self.files).map(lambda changed: self.of_file(*changed)),
        )

        @hypothesis.seed(seed)
        @settings(
            max_examples=inputs,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def one(case: Case) -> None:
            self.count(case, tried(case))

        one()

    def count(self, case: Case, ending: Ending) -> None:
        """Add how a case ended."""
        self.counts[case.name, ending.how] += 1
        if ending.how in BAD:
            self.failed.append((case, ending))
        if ending.how == "refused" and ending.seconds > SLOW_SECONDS:
            self.counts[case.name, "slow"] += 1
            self.slow.append((case, ending))

    def table(self) -> str:
        """The number of inputs by subcommand or file, and by how they ended."""
        columns = ("tried", *OUTCOMES, "slow")
        rows = [f"{'':26}" + "".join(f"{column:>11}" for column in columns)]
        for name in [*sorted({name for name, _ in self.counts}), "all"]:
            of = dict.fromkeys(columns, 0)
            for (each, how), number in self.counts.items():
                if name in (each, "all"):
                    of[how] += number
                    of["tried"] += number if how != "slow" else 0
            rows.append(f"{name:26}" + "".join(f"{of[column]:11}" for column in columns))
        return "\n".join(rows)


def _subcommand(words: list[str]) -> str:
    two = " ".join(words[:2])
    return two if two in BASES else words[0]


def tried(case: Case) -> Ending:
    """Runs a case in the current folder."""
    if case.text is not None:
        (Path(CHANGED) / case.name).write_bytes(case.text.encode(errors="surrogatepass"))
    errors, answer, status = io.StringIO(), io.StringIO(), 0
    before, kilobytes = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    how, message = "", ""
    with contextlib.redirect_stdout(answer), contextlib.redirect_stderr(errors), mock.patch.dict(os.environ):
        try:
            with guarded(*(event for key, event in BEGINS.items() if case.words[: len(key.split())] == key.split())):
                status = cli.main(case.words)
        except StartedError:
            how = "accepted"
        except EndlessError:
            how = "no end"
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            how, message = "traceback", traceback.format_exc()
    seconds = time.process_time() - before
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes
    if not how:
        how, message = _judged(case, status, answer.getvalue(), errors.getvalue())
    return Ending(how, message, seconds, grown)


def _judged(case: Case, status: Any, answer: str, messages: str) -> tuple[str, str]:
    if status == 0:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as more:
            problem = judge.accepted(case.words, answer)
        return ("wrong", f"{problem}\n{more.getvalue()}") if problem else ("accepted", messages)
    if status not in (1, 2):
        return "wrong", f"exit status {status}"
    problem = judge.refused(messages)
    return ("wrong", problem) if problem else ("refused", messages)


def corpus() -> dict[str, Case]:
    """Every input that ever failed, by the name of its file."""
    return {path.stem: Case(**json.loads(path.read_text())) for path in sorted(CORPUS.glob("*.json"))}
