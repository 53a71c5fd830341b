"""The code behind a stage holds all that the stage comes to load, and nothing of what it does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradsync import collectives, kernels, names, schedules, topologies, updates
from gradsync.workflow import import_closure

ROOT = Path(__file__).parents[3]
RULES = ROOT / "workflow" / "rules"
WORKLOAD = "config/papers/mgwfbp/examples/counterexample.json"
LOADED = """\
import json, sys
from gradsync import cli
before = set(sys.modules)
status = cli.main(sys.argv[2:])
loaded = [name for name in set(sys.modules) - before if name.partition(".")[0] == "gradsync"]
open(sys.argv[1], "w").write(json.dumps(loaded))
sys.exit(status)
"""


def test_packages_that_find_their_modules_bring_all_of_them():
    behind = import_closure.modules("experiments.predict")
    assert {f"gradsync.schedules.{name}" for name in schedules.names()} <= {*behind}
    assert {f"gradsync.collectives.{name}" for name in collectives.names()} <= {*behind}
    assert {f"gradsync.topologies.{name}" for name in topologies.names()} <= {*behind}
    files = {*names.modules_in(kernels.__path__), "_encode", "_code", "_unscaled"}
    assert {f"gradsync.kernels.{name}" for name in files} <= {*behind}
    assert {f"gradsync.updates.{name}" for name in updates.names()} <= {*behind}


@pytest.mark.parametrize(
    ("entries", "other"),
    [
        (["experiments.train"], "drawing"),
        (["experiments.train"], "commands"),
        (["experiments.predict"], "runtime"),
        (["experiments.profile.launch"], "papers"),
        (["experiments.profile.layers"], "measure.allreduce"),
        (["papers.bml_bcube.declaration", "papers.tables"], "papers.mgwfbp"),
        (["experiments.emulate", "papers.mgwfbp.emulation"], "drawing"),
        (["claims"], "drawing"),
        (["claims", "papers.mgwfbp.coverage"], "papers.bml_bcube"),
    ],
)
def test_what_a_stage_does_not_use_reruns_nothing(entries, other):
    behind = import_closure.modules(*entries)
    assert not [name for name in behind if f"{name}.".startswith(f"gradsync.{other}.")]


def test_a_stage_loads_nothing_but_the_code_behind_it(tmp_path):
    """What running it imports, besides the command line itself, is compared with what was read from the sources."""
    plan, counted = str(tmp_path / "plan.json"), str(tmp_path / "counted.json")
    line = ["--allreduce", "a=1,b=1", "--ranks", "2", "--schedule", "optimal"]
    words = {
        "experiments.predict": ["plan", "--workload", WORKLOAD, *line, "--output", plan, "--prediction", f"{plan}.csv"],
        "experiments.profile.operations": [
            "measure",
            "operations",
            "--model",
            "lenet5",
            "--batch",
            "1",
            "--output",
            counted,
        ],
        "papers.mgwfbp.declaration papers.tables": ["table", "mgwfbp", "timelines", "--results", str(tmp_path)],
    }
    for entries, each in words.items():
        record = tmp_path / "loaded.json"
        command = [sys.executable, "-c", LOADED, str(record), *each]
        path = {"PYTHONPATH": str(ROOT / "workflow" / "src")}
        ended = subprocess.run(command, cwd=ROOT, env=os.environ | path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        # the places of results, and the words of commands, are no part of what a stage computes
        loaded = {name for name in json.loads(record.read_text()) if name != "gradsync.configuration.settings"}
        assert loaded
        assert loaded <= {*import_closure.modules(*entries.split())}


def test_the_digest_changes_with_any_module_behind_it_alone(monkeypatch):
    before = import_closure.digest("claims"), import_closure.digest("measure.third_party")
    whole = import_closure._source
    monkeypatch.setattr(
        import_closure, "_source", lambda name: whole(name) + b"#" * (name == "gradsync.claims.expressions")
    )
    assert import_closure.digest("claims") != before[0]
    assert import_closure.digest("measure.third_party") == before[1]


def test_an_entry_that_is_gone_is_told():
    with pytest.raises(KeyError, match=r"gradsync\.runtime\.nothing: not in the package any more"):
        import_closure.modules("runtime.nothing")


def test_every_rule_that_runs_the_package_names_the_code_behind_it():
    """Rules of images, and one that asks for the others, have none."""
    for file in RULES.glob("*.smk"):
        for rule in re.split(r"^ *rule ", file.read_text(), flags=re.MULTILINE)[1:]:
            if "python -m gradsync" in rule and not rule.startswith(("image:", "image_base:")):
                assert "code(" in rule, (file.name, rule.partition(":")[0])
