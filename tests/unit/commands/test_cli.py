"""The command line itself: its commands explain themselves, wrong words are named, a closed pipe ends it quietly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from command_lines import LINE

COMMANDS = [
    "advise",
    "plan",
    "simulate",
    "collective",
    "draw",
    "train",
    "elastic",
    "export",
    "import",
    "measure",
    "external",
    "count",
    "table",
    "figure",
    "claims",
    "site",
    "compare",
    "track",
    "benchmark",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    ended = run(command, "--help")
    assert ended.status == 0
    assert f"usage: gradsync {command}" in ended.out
    assert "--json" in ended.out


def test_the_list_of_commands_is_complete(run):
    ended = run("--help")
    assert ended.status == 0
    listed = {line.split()[0] for line in ended.out.splitlines() if line.startswith("    ") and line.strip()}
    assert set(COMMANDS) <= listed


def test_a_closed_pipe_ends_without_a_traceback(workload):
    arguments = ["plan", "--workload", str(workload), "--allreduce", LINE, "--schedule", "wfbp", "--json"]
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.stdin.read(); from gradsync.cli import main; sys.exit(main({arguments}))",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # nobody reads
        child.stdin.close()  # begin
        assert child.stderr.read() == b""
        assert child.wait() == 1


ON_A_LINE = ["--workload", "good.json", "--allreduce", LINE]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        [],
        ["plan", "--workload", "good.json"],
        ["plan", *ON_A_LINE, "--schedule", "wfbp", "--nosuch", "1"],
        ["plan", *ON_A_LINE, "--schedule", "wfbp", "--ranks", "two"],
        ["measure", "weather", "--output", "x"],
        ["table", "mgwfbp"],
    ],
    ids=str,
)
def test_a_wrong_command_line_gets_one_line_that_names_the_help(run, arguments):
    ended = run(*arguments)
    assert ended.status == 2
    assert ended.err.startswith("gradsync: ")
    assert ended.err.count("\n") == 1
    assert "--help shows all)" in ended.err
    assert "Traceback" not in ended.err
