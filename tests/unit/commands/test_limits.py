"""What no subcommand takes: absurd numbers, odd texts, options that need another one, and one given twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gradsync import limits
from gradsync.cli import main
from gradsync.commands.limits import WHOLE
from gradsync.configuration import settings
from gradsync.errors import InputError

COUNTER = "config/papers/mgwfbp/examples/counterexample.json"
PLAN = ["plan", "--workload", COUNTER, "--allreduce", "a=1,b=1", "--schedule", "wfbp"]
COLLECTIVE = ["collective", "--bytes", "9", "--alpha", "1", "--bandwidth", "9"]
REFUSED = [
    ([*PLAN, "--momentum", "2"], "--momentum 2.0: must be at least 0 and less than 1"),
    ([*PLAN, "--optimizer", "adm"], "--optimizer: optimizer 'adm' does not exist; did you mean adam"),
    ([*PLAN, "--optimizer", "lars", "--precision", "float16"], "--precision: float16 needs a loss scale"),
    ([*PLAN, "--optimizer", "adam", "--beta1", "1"], "--beta1 1.0: must be at least 0 and less than 1"),
    ([*PLAN, "--optimizer", "adamw", "--eps", "0"], "--eps 0.0: must be finite and at least 1e-30"),
    ([*PLAN, "--weight-decay", "-1"], "--weight-decay -1.0: must be finite and not negative"),
    ([*PLAN, "--lr", "inf"], "--lr inf: must be a finite number"),
    ([*PLAN, "--accumulate", "1000000"], "--accumulate 1000000: at least 1, at most 1024"),
    ([*PLAN, "--nodes", "0"], "--nodes 0: at least 1"),
    ([*PLAN, "--workload", "a\0b"], "characters that no file name"),
    ([*PLAN, "--workload", "\udcff"], "characters that no file name"),
    (["check", "x" * 20_000], "20000 characters"),
    (["simulate", "--plan", "p", *PLAN[1:5], "--turns", "99999999"], "--turns 99999999: at least 2, at most 10000"),
    (["measure", "contention", "--lanes", "999", "--output", "o"], "--lanes 999: at least 2, at most 16"),
    (["measure", "allreduce", "--largest", str(1 << 50), "--output", "o"], "at most 68719476736"),
    (["train", "--seed", "-1", "--peer", "ddp", "--output", "o"], "--seed -1: not negative"),
    (["train", "--seed", str(1 << 64), "--peer", "ddp", "--output", "o"], "at most 18446744073709551615"),
    (["train", "--rate", "4e8", "--peer", "ddp", "--output", "o"], "--rate: only with --testbed"),
    (["train", "--peer", "ddp", "--output", ""], "--output: the current folder is no file"),
    (["check", "a\nb"], "characters that can't be shown"),
    ([*PLAN, "--output", "a\nb"], "--output 'a\\nb': characters that can't be shown"),
    ([*COLLECTIVE, "torus2d", "--topology", "torus2d:4,262144"], "at most 10000000000 are timed"),
    ([*COLLECTIVE, "ring", "--ranks", str(1 << 20)], "more than 1e+10 transfers to be timed"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=range(len(REFUSED)))
def test_it_is_refused_in_one_line_before_anything_is_done(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--output", "pipe"], "pipe or socket"), (["--base", "folder", "--output", "o.sif"], "is a folder")],
)
def test_an_image_is_made_of_a_file_and_into_one(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    assert main(["image", "cpu", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_option_that_is_given_twice_does_not_win_silently(capsys):
    assert main([*PLAN, "--schedule", "single"]) == 0
    assert "--schedule was given more than once: the last was taken" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["network", "contention"])
def test_configurations_and_options_have_the_same_limits(part):
    content = yaml.safe_load(Path("config/quick.yaml").read_text())
    most = limits.MOST_MESSAGE
    assert getattr(settings.parse(content | {part: {"largest": most}}, "c"), part).largest == most
    assert WHOLE["largest"][1] == most
    with pytest.raises(InputError, match=f"{part}.largest.*{most}"):
        settings.parse(content | {part: {"largest": most + 4}}, "c")
