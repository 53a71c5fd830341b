"""What commands say of themselves: every option has a meaning, and its default stands there once and is true."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from fuzz.commands import parsers
from gradsync import commands
from gradsync.cli import main
from gradsync.commands import COMMANDS
from gradsync.commands.usage import Formatter

PARSERS = parsers()
FORMATTER = Formatter("gradsync")
DEFAULT = re.compile(r" \(default: (.+)\)$")


def meaning(action: argparse.Action) -> str:
    """The help of an action, as it is shown."""
    return FORMATTER._expand_help(action)


def shown(name: str) -> list[argparse.Action]:
    return [action for action in PARSERS[name]._actions if action.help != argparse.SUPPRESS]


@pytest.mark.parametrize("name", PARSERS)
def test_every_option_has_a_meaning_and_one_default_at_most(name):
    for action in shown(name):
        assert action.help, action.dest
        text = meaning(action)
        assert text.count("(default") <= 1, text
        assert "%" not in text
        assert not re.search(r"None|True|False|\[\]", text), text


@pytest.mark.parametrize("name", PARSERS)
def test_the_default_that_is_told_is_the_one_that_holds(name):
    """Read again, it is the same value; an option without one has none, or one that does nothing or is refused."""
    for action in shown(name):
        match, default = DEFAULT.search(meaning(action)), action.default
        if action.required or default is None or default == argparse.SUPPRESS:
            continue
        if match is None:
            silent = getattr(action, "silent", False)
            assert default is False or default in ("", []) or silent, (action.dest, default)
        elif isinstance(action, argparse.BooleanOptionalAction):
            assert match[1] == action.option_strings[not default]
        elif default != []:  # of several values none: the meaning says what holds
            values = default if isinstance(default, list) else [default]
            assert [(action.type or str)(word) for word in match[1].split()] == values


def test_every_command_has_a_file_of_its_own():
    names = [command.__name__.removeprefix("gradsync.commands.") for command in COMMANDS]
    assert len(set(names)) == len(names)
    assert {name.partition(" ")[0] for name in PARSERS} == {name.removesuffix("_") for name in names}
    folder = Path(commands.__file__).parent
    assert {path.stem for path in folder.glob("*.py") if "def run(" in path.read_text()} == set(names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["layers", "--smallest", "4"], "'--smallest': no such option; allreduce, contention have it"),
        (
            ["allreduce", "--model", "lenet5"],
            "'--model': no such option; layers, interference, launch, loading, operations",
        ),
        (["operations", "--ranks", "2"], "'--ranks': no such option; layers, allreduce, contention"),
        (["replay", "--workload", "w.json", "--device", "cuda"], "'--device': no such option; layers, allreduce"),
        (["launch", "--workload", "w.json"], "'--workload': no such option"),
        (["layers", "--ranks", "1", "2"], "'2': one word too many: --ranks takes one number"),
        (["interference", "--ranks", "2"], "--workload: needed, and not given"),
        (["weather"], "'weather' does not exist; there are: layers, allreduce"),
        ([], "WHAT: needed, and not given"),
    ],
    ids=str,
)
def test_what_is_measured_takes_its_own_options_alone(words, message, tmp_path, capsys):
    assert main(["measure", *words, *(["--output", str(tmp_path / "o")] if words else [])]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
