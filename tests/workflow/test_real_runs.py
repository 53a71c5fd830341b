"""Short real runs of the workflow: what is done stays done, launches are trained, corrupt inputs are named."""

from __future__ import annotations

import json
import re

import pytest

from gradsync import papers
from gradsync.configuration import settings
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.files.results import Result
from gradsync.papers.labels import labels
from gradsync.papers.table import read
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from project_copy import ROOT
from tiny_workflow import QUICK_TARGETS, RESULTS, TINY, jobs, makes


@pytest.mark.deep
def test_what_is_done_stays_done_until_something_changes(own_project):
    first = own_project.snakemake(*QUICK_TARGETS)
    assert first.returncode == 0, first.stdout
    assert all((own_project.folder / target).stat().st_size for target in QUICK_TARGETS)
    for ending in (".csv", ".md", ".tex"):
        assert own_project.read(f"{RESULTS}/tables/mgwfbp/table2{ending}")
    again = own_project.snakemake(*QUICK_TARGETS)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout
    assert jobs(again) == {}
    # what a figure alone depends on
    style = own_project.folder / "reports" / "gradsync.mplstyle"
    style.write_text(style.read_text() + "lines.linewidth: 2.0\n")
    assert jobs(own_project.snakemake("-n", *QUICK_TARGETS)) == {"figure": 1, "total": 1}
    # what none of them depends on
    ledger = own_project.folder / "workflow" / "src" / "gradsync" / "claims" / "verdicts.py"
    ledger.write_text(ledger.read_text() + "# changed\n")
    assert jobs(own_project.snakemake("-n", *QUICK_TARGETS)) == {"figure": 1, "total": 1}
    # what all of them are computed with
    simulator = own_project.folder / "workflow" / "src" / "gradsync" / "engine" / "simulate.py"
    simulator.write_text(simulator.read_text() + "# changed\n")
    assert jobs(own_project.snakemake("-n", *QUICK_TARGETS)) == {"figure": 1, "table": 2, "total": 3}


@pytest.mark.deep
def test_snakemakes_own_report_is_made_and_read_without_a_network(own_project):
    made = own_project.snakemake(*QUICK_TARGETS)
    assert made.returncode == 0, made.stdout
    ended = own_project.snakemake("--report", "report.html", *QUICK_TARGETS)
    assert ended.returncode == 0, ended.stdout
    page = own_project.read("report.html")
    assert all(rule in page for rule in makes("table2"))
    assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?:""", page)


def test_a_launch_is_planned_trained_and_in_the_table(own_project):
    """From a profile that is there already: measuring takes longer than all else."""
    more = "schemes: [wfbp, mgwfbp], seeds: [3, 4], statistics: local, peers: [ddp_mgwfbp]"
    own_project.write("config/tiny.yaml", TINY.replace("peers: [ddp]", more))
    layers = tuple(
        Layer(name=name, bytes=4 * parameter.numel(), backward_seconds=1e-3)
        for name, parameter in reversed(list(models.build("lenet5", 0).named_parameters()))
    )
    profile = f"{RESULTS}/profile/lenet5-2"
    own_project.write(
        f"{profile}/workload.json", Workload(name="lenet5", forward_seconds=1e-3, layers=layers).to_json()
    )
    own_project.write(f"{profile}/allreduce.csv", "bytes,seconds\n64,1e-3\n4096,1e-3\n16777216,2e-2\n")
    slowed = InterferencePoint(bytes=1024, computation=1.5, communication=1.25)
    own_project.write(f"{profile}/interference.json", Interference(ranks=2, points=(slowed,)).to_json())
    allowed = ("--allowed-rules", "plan", "train", *makes("training"), "--")
    target = f"{RESULTS}/tables/mgwfbp/training.md"
    ended = own_project.snakemake(*allowed, target)
    assert ended.returncode == 0, ended.stdout
    # the screen has a line for each job that starts and one for each that ends; Snakemake's own are in its log file
    assert re.search(r"^\d\d:\d\d:\d\d  train lenet5-2$", ended.stdout, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  train lenet5-2: done in [\d.]+ (s|min); \d of 4\b", ended.stdout, re.MULTILINE)
    assert "tables of mgwfbp: training: done in" in ended.stdout
    assert "jobid" not in ended.stdout
    assert "rule train:" in own_project.log()
    folder = own_project.folder / RESULTS / "runs" / "train" / "lenet5-2"
    names = list(json.loads((folder / "schemes.json").read_text()))
    assert names == ["wfbp", "mgwfbp", "ddp_mgwfbp", "no_communication", "one_rank"]
    label_of = labels(settings.load(ROOT / "config/quick.yaml"))
    expected = {"batch": 8, "iterations": 8, "block": 4, "seeds": [3, 4], "statistics": False, "conformance": 1}
    for name in names:
        result = Result.load(folder / name / "result.json")
        assert expected.items() <= result.settings.items()
        assert f"| {label_of(name)} " in own_project.read(target)
    assert Result.load(folder / "mgwfbp" / "result.json").conformance["oracle_difference"] < 1e-9
    table = read(own_project.folder / RESULTS / "tables" / "mgwfbp" / "training.csv")
    assert set(table[table.rung == "simulated"].scheme) == {"wfbp", "mgwfbp"}
    assert jobs(own_project.snakemake("-n", *allowed, target)) == {}


def test_a_folder_without_the_logs_ends_with_a_clear_error(own_project):
    own_project.write("logs/tmp8comm.log", "[0, 1, 1.0, 1, 0]\n")
    own_project.write("config/tiny.yaml", TINY + "external_data: logs\n")
    ended = own_project.snakemake(f"{RESULTS}/external/status.json")
    assert ended.returncode != 0
    assert "gradsync: third-party log logs/allreduce2.log: " in ended.stdout
    assert "Traceback" not in ended.stdout


CORRUPT = {  # table: (what it reads, its content, what is said)
    "gap": ("profile/resnet50/workload.json", "{", "workload.json: not a workload: "),
    "training": ("runs/train/lenet5-2/naive/result.json", "{", "result.json: not a result: "),
    "fig5b": ("profile/network/allreduce.csv", "torn\n1\n", "allreduce.csv: not all-reduce times"),
}


def test_corrupt_inputs_of_tables_end_each_with_a_clear_error(own_project):
    own_project.write(f"{RESULTS}/runs/train/lenet5-2/schemes.json", '["naive"]')
    for spoilt, text, _ in CORRUPT.values():
        own_project.write(f"{RESULTS}/{spoilt}", text)
    targets = [f"{RESULTS}/tables/mgwfbp/{table}.csv" for table in CORRUPT]
    # the inputs are taken as they are: only tables may be made
    rules = makes(*papers.declared("mgwfbp").tables)
    ended = own_project.snakemake("--keep-going", "--allowed-rules", *rules, "--", *targets)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stdout
    for (table, (spoilt, _, message)), target in zip(CORRUPT.items(), targets, strict=True):
        assert re.search(rf"gradsync: (?:workload |result )?{RESULTS}/{re.escape(spoilt)}", ended.stdout), ended.stdout
        assert message in ended.stdout
        assert not (own_project.folder / target).exists()
        (rule,) = makes(table)
        assert message in own_project.read(f"{RESULTS}/logs/table/{rule.removeprefix('table_')}.log")
