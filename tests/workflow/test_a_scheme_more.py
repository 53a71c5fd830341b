"""One file adds a schedule, or a collective, to the package, the workflow and the conformance tests."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import toy_collective
from gradsync import schedules
from gradsync.papers.table import read
from project_copy import Project
from tiny_workflow import RESULTS, jobs, tiny_copy

PAIRS = '''\
"""Every two gradients travel together."""

from gradsync.schedules import grouped


def schedule(workload, cost):
    """Messages that end at every second gradient, and at the last."""
    last = len(workload.layers) - 1
    return grouped([*range(1, last, 2), last])
'''


@pytest.fixture(scope="module")
def with_pairs(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy with one more schedule and one more collective, a file each."""
    copy = tiny_copy(tmp_path_factory.mktemp("with-pairs"))
    copy.write("workflow/src/gradsync/schedules/pairs.py", PAIRS)
    copy.write("workflow/src/gradsync/collectives/toy.py", toy_collective.TEXT)
    return copy


PLAN = [
    *("gradsync", "plan", "--json", "--schedule", "pairs", "--allreduce", "a=1,b=1"),
    *("--workload", "config/papers/mgwfbp/examples/counterexample.json"),
]


def test_the_toy_schedule_is_not_there_yet(project):
    assert "pairs" not in schedules.names()
    ended = project.run(*PLAN)
    assert ended.returncode == 2
    assert ended.stdout.startswith("gradsync: schedule 'pairs' does not exist")


def test_a_new_schedule_can_be_planned(with_pairs):
    ended = with_pairs.run(*PLAN)
    assert ended.returncode == 0, ended.stdout
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert [len(message) for message in answer["messages"]] == [2, 1]


def test_a_new_collective_is_a_scheme_that_can_be_planned(with_pairs, project):
    command = ["toy" if word == "pairs" else word for word in PLAN]
    refused = project.run(*command)
    assert refused.stdout.startswith("gradsync: schedule 'toy' does not exist")
    links = ("--allreduce", "alpha=2,bandwidth=4", "--ranks", "3", "--schemes", "config/schemes.yaml")
    ended = with_pairs.run(*command[: command.index("--allreduce")], *links, *command[-2:])
    assert ended.returncode == 0, ended.stdout
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert (answer["collective"], answer["topology"], len(answer["messages"])) == ("toy", "switch:3", 3)
    # four rounds, each a third of the message over every link
    assert answer["allreduce"].startswith("T(m) = 8 s + 0.333333 s/B m (toy of 3 on switch:3")


@pytest.mark.deep
def test_a_new_schedule_or_collective_is_held_to_the_conformance_tests(with_pairs):
    pytest = ("pytest", "-q", "-p", "no:cacheprovider", "tests/conformance", "-k")
    listed = with_pairs.run(*pytest, "pairs", "--collect-only")
    for file, count in (
        ("test_schedules_execute", 5),
        ("test_real_models", 6),
    ):  # real models: 2 types, 3 of models and ranks
        assert listed.stdout.count(f"{file}.py::") >= count, listed.stdout
    ended = with_pairs.run(*pytest, "(pairs or toy) and test_schedules_execute", "-rp")
    assert ended.returncode == 0, ended.stdout
    counts = re.search(r"(\d+) passed, (\d+) deselected", ended.stdout)
    assert counts is not None, ended.stdout
    assert int(counts[1]) >= 6
    executed = "test_every_collective_executed_equals_oracle_and_plain_torch[toy]"
    assert f"PASSED tests/conformance/test_schedules_execute.py::{executed}" in ended.stdout
    assert "skipped" not in ended.stdout


def test_a_new_schedule_or_collective_is_measured_planned_and_trained_by_the_workflow(with_pairs, project):
    ended = with_pairs.snakemake("-n", "-p")
    counts, counts_before = jobs(ended), jobs(project.snakemake("-n"))
    assert counts["plan"] == counts_before["plan"] + 2
    assert counts["profile_job"] == counts_before["profile_job"]  # one launch measures all collectives
    (measured,) = re.findall(r"measure launch .*--collective (native .*) --output", ended.stdout)
    assert "toy@switch:2" in measured.split()
    (train,) = re.findall(r"rule train:\n.*?(?=\n\n|\nrule|\n\[)", ended.stdout, re.DOTALL)
    for name in ("pairs", "toy"):
        plan = f"{RESULTS}/plans/lenet5-2/{name}.json"
        assert re.search(rf"rule plan:.*?output: {re.escape(plan)}", ended.stdout, re.DOTALL)
        assert plan in train.splitlines()[1]


def test_a_new_schedule_is_in_the_tables(with_pairs):
    profile = {
        "name": "resnet50",
        "forward_seconds": 0.5,
        "layers": [{"name": f"t{i}", "bytes": 4 * 10 ** (2 + i), "backward_seconds": 0.2} for i in range(5)],
    }
    with_pairs.write(f"{RESULTS}/profile/resnet50/workload.json", json.dumps(profile))
    for table in ("gap", "fig9b"):
        ended = with_pairs.run("gradsync", "table", "mgwfbp", table, "--config", "config/tiny.yaml")
        assert ended.returncode == 0, ended.stdout
        frame = read(with_pairs.folder / RESULTS / "tables" / "mgwfbp" / f"{table}.csv")
        of_pairs = frame[(frame.model == "resnet50") & (frame.scheme == "pairs")]
        assert len(of_pairs) == 4 * (2 if table == "gap" else 1)  # 2 slopes x 2 units x nodes
        assert (of_pairs.iteration_seconds > 0).all()
    assert "| pairs " in with_pairs.read(f"{RESULTS}/tables/mgwfbp/fig9b.md")
