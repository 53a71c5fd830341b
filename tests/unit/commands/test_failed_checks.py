"""Exit status 1: a check or a benchmark failed; nothing else is written, and nothing that is there is lost."""

from __future__ import annotations

import json

import pytest

from command_lines import EARLIER, LINE, without_first_message


def test_a_plan_that_fails_its_check_ends_with_status_1(run, workload, plan, tmp_path):
    broken, trace = tmp_path / "broken.json", tmp_path / "trace.json"
    broken.write_text(without_first_message(plan))
    trace.write_text(EARLIER)
    ended = run("simulate", "--plan", broken, "--workload", workload, "--allreduce", LINE, "--output", trace)
    assert ended.status == 1
    assert ended.out == ""
    assert ended.err.startswith("gradsync: plan 'wfbp': missing gradient: 'l3'")
    assert "Traceback" not in ended.err
    assert trace.read_text() == EARLIER


@pytest.mark.parametrize("command", ["draw", "train", "export"])
def test_nothing_is_made_of_a_plan_that_fails_its_check(run, plan, tmp_path, command):
    broken, output = tmp_path / "broken.json", tmp_path / "output.svg"
    broken.write_text(without_first_message(plan))
    arguments = {
        "draw": [broken, "--output", output],
        "train": ["--plan", broken, "--output", output],
        "export": [broken],
    }
    ended = run(command, *arguments[command])
    assert ended.status == 1
    assert ended.err.startswith("gradsync: plan 'wfbp': missing gradient: 'l3'")
    assert not output.exists()


@pytest.mark.parametrize("command", ["draw", "export"])
def test_a_plan_without_roles_is_refused(run, plan, tmp_path, command):
    empty = tmp_path / "no-roles.json"
    empty.write_text(json.dumps({**json.loads(plan.read_text()), "roles": []}))
    ended = run(command, empty, *(["--output", tmp_path / "x.svg"] if command == "draw" else []))
    assert ended.status == 1
    assert ended.err.startswith("gradsync: plan 'wfbp': ")
    assert len(ended.err.splitlines()) == 1


def test_a_missed_benchmark_ends_with_status_1_and_leaves_its_numbers(run, tmp_path, monkeypatch):
    missed = {"rows": [{"task": "slow", "ratio": 1.5, "met": False}], "met": False}
    monkeypatch.setattr("gradsync.benchmarks.planning_speed.measure", lambda: missed)
    ended = run("benchmark", "planning", "--json", "--results", tmp_path)
    assert ended.status == 1
    assert json.loads(ended.out) == missed
    (message,) = ended.err.splitlines()
    assert message.startswith("gradsync: benchmark: missed its target: slow: 1.500")
    assert json.loads((tmp_path / "benchmarks" / "planning.json").read_text()) == missed
