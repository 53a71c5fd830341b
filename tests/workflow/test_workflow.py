"""The workflow, in copies of the project: lint, dry runs, short real runs, and one file that adds a scheme."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import toy_collective
from batches import batches, rules
from gradsync import papers, schedules
from gradsync.configuration import schemes, settings
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.files.results import Result
from gradsync.papers.declaration import Batch
from gradsync.papers.labels import labels
from gradsync.papers.table import read
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from gradsync.testbed import privileges
from project_copy import ROOT, Project, path_without

TINY = """\
version: 1
name: tiny
training: [{model: lenet5, ranks: 2, batch: 8, iterations: 8, block: 4, peers: [ddp], conformance: 1}]
profiles: {resnet50: {batch: 2, size: 64, iterations: 2}, googlenet: {batch: 2, size: 64, iterations: 2}}
network: {ranks: [2], smallest: 64, largest: 4096}
papers: {mgwfbp: {nodes: [4], gap_nodes: [4, 8], forward_shares: [0.5], bucket_sweep: 2}}
"""
TESTBEDS = privileges.impossible()
LAUNCHES = TINY.splitlines()[2]
PAIRS = '''\
"""Every two gradients travel together."""

from gradsync.schedules import grouped


def schedule(workload, cost):
    """Messages that end at every second gradient, and at the last."""
    last = len(workload.layers) - 1
    return grouped([*range(1, last, 2), last])
'''
needs_apptainer = pytest.mark.skipif(shutil.which("apptainer") is None, reason="apptainer is not on PATH")
needs_testbeds = pytest.mark.skipif(bool(TESTBEDS), reason=f"testbeds can't be made here: {TESTBEDS}")
RESULTS = "results/tiny"
QUICK_TARGETS = [
    f"{RESULTS}/tables/mgwfbp/table2.csv",
    f"{RESULTS}/tables/mgwfbp/timelines.md",
    f"{RESULTS}/figures/mgwfbp/fig1.svg",
]


def tiny_copy(folder: Path) -> Project:
    """A copy with the configuration that most tests run."""
    copy = Project(folder)
    copy.write("config/tiny.yaml", TINY)
    return copy


def jobs(ended: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Rule -> number of jobs in the table that Snakemake prints; all rules that make tables, or figures, are one."""
    assert ended.returncode == 0, ended.stdout
    tables = re.findall(r"^job +count\n[- ]+\n((?:\w+ +\d+\n)+)", ended.stdout, re.MULTILINE)
    found: dict[str, int] = {}
    for rule, count in re.findall(r"(\w+) +(\d+)", tables[-1]) if tables else ():
        kind = re.sub(r"^(table|figure)_.*", r"\1", rule)
        found[kind] = found.get(kind, 0) + int(count)
    return found


def made(configuration: str) -> dict[str, list[Batch]]:
    """Tables and figures of a configuration of the checkout, as they are made together."""
    return batches(settings.load(ROOT / "config" / f"{configuration}.yaml"))


def makes(*tables: str) -> list[str]:
    """Rules that make tables in the tiny configuration."""
    return [rule for rule in rules(settings.parse(yaml.safe_load(TINY), "tiny"), *tables) if rule.startswith("table_")]


def planned(launch: dict[str, Any], device: str = "cpu") -> int:
    """Schemes that a launch of a configuration has."""
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    return len(schemes.pick(known, launch.get("schemes"), "a test", launch["ranks"], device))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy that tests only read or give files of their own."""
    return tiny_copy(tmp_path_factory.mktemp("project"))


@pytest.fixture
def own_project(tmp_path: Path) -> Project:
    """A copy for one test."""
    return tiny_copy(tmp_path)


def test_lint_finds_nothing(project):
    ended = project.run("snakemake", "--lint")
    assert ended.returncode == 0, ended.stdout


def test_the_quick_configuration_makes_everything_once(project):
    ended = project.run("snakemake", "-n")  # no configuration named: the quick one
    found = jobs(ended)
    quick = yaml.safe_load((ROOT / "config" / "quick.yaml").read_text())
    profiled = [launch for launch in quick["training"] if launch.get("profile_iterations") != 0]
    counted = [launch for launch in quick["training"] if launch not in profiled]
    assert counted
    assert found.pop("total") == sum(found.values())
    assert found == {
        "all": 1,
        "count": 1,
        "plan_counted": sum(planned(launch) for launch in counted),
        "profile_job": len(profiled),
        "profile_model": len(quick["profiles"]),
        "profile_network": 1,
        "profile_contention": 1,
        "plan": sum(planned(launch) for launch in profiled),
        "train": len(quick["training"]),
        "table": len(made("quick")["table"]),
        "figure": len(made("quick")["figure"]),
        "claims": 1,
        "track": 1,
    }
    assert "results/quick/claims.json" in ended.stdout
    assert not (project.folder / "results").exists()


@pytest.mark.deep
@pytest.mark.parametrize("apptainer", [False, pytest.param(True, marks=needs_apptainer)], ids=["without", "apptainer"])
def test_the_full_configuration_is_every_model_on_every_number_of_ranks(project, capsys, tmp_path, apptainer):
    """What `snakemake --profile slurm` would submit, and what it will cost; told where nothing could be run, too."""
    path = {} if apptainer else {"PATH": path_without("apptainer", tmp_path / "bin")}
    ended = project.run("snakemake", "-n", "--profile", "slurm", **path)
    found = jobs(ended)
    assert ("only a dry run is possible here" in ended.stdout) is not apptainer
    estimated = project.run("gradsync", "estimate", "--config", "config/full.yaml", "--json")
    estimate = json.loads(estimated.stdout)
    with capsys.disabled():
        print(f"\nfull configuration: {found['total']} jobs, about {estimate['gpu_hours']:.0f} GPU hours")
    full = [name for name, model in models.MODELS.items() if not model.reduced]
    sizes = [(model, ranks) for model in full for ranks in (4, 8, 16, 32, 64)]
    sizes += [("resnet50", 2), ("googlenet", 2)]  # as in Fig. 6 and 7 of the MG-WFBP paper
    launches = [f"{model}-{ranks}" for model, ranks in sizes]
    assert sorted(one["job"] for one in estimate["launches"]) == sorted(launches)
    assert (found["train"], found["profile_job"]) == (len(launches), len(launches))
    assert found["plan"] == sum(planned({"ranks": ranks}, "cuda") for _, ranks in sizes)
    assert (found["cluster_profile"], found["image"]) == (1, 1)
    assert found["figure"] == len(made("full")["figure"])
    assert re.search(r"resources: .*mpi=srun, tasks=64, nodes=64, slurm_extra=--ntasks-per-node=1\n", ended.stdout)
    assert estimate["gpu_hours"] == pytest.approx(sum(one["gpu_hours"] for one in estimate["launches"]))


def test_a_run_in_images_is_refused_without_apptainer(own_project, tmp_path):
    ended = own_project.snakemake(
        *("--profile", "slurm", *QUICK_TARGETS), PATH=path_without("apptainer", tmp_path / "bin")
    )
    assert ended.returncode != 0
    assert "jobs are to run in an image, and apptainer is not on the PATH: install Apptainer 1.2" in ended.stdout
    assert "Traceback" not in ended.stdout
    assert not (own_project.folder / RESULTS).exists()


def test_missing_data_is_named_before_anything_runs(own_project):
    own_project.write(
        "config/data.yaml", TINY.replace("batch: 8,", "batch: 8, data: mnist, data_folder: data/nowhere,")
    )
    ended = own_project.snakemake(configuration="config/data.yaml")
    assert ended.returncode != 0
    assert "data_folder does not exist (lenet5-2: data/nowhere)" in ended.stdout
    assert not (own_project.folder / RESULTS).exists()


@pytest.mark.parametrize("testbeds", [False, pytest.param(True, marks=needs_testbeds)], ids=["without", "testbeds"])
def test_benchmarks_are_made_on_demand_only(project, tmp_path, testbeds):
    path = {} if testbeds else {"PATH": path_without("ip", tmp_path / "bin")}
    ended = project.snakemake("-n", "benchmark", **path)
    wanted = {"benchmark": 1, "benchmark_one": 4, **({"benchmark_testbed": 1} if testbeds else {})}
    assert jobs(ended) == {**wanted, "total": sum(wanted.values())}
    assert ("no benchmark of the testbed: the command 'ip' is missing" in ended.stdout) is not testbeds


@pytest.mark.parametrize("configuration", ["quick", "emulated", "full"])
def test_whatever_a_job_is_given_is_recorded_so_that_another_value_reruns_it(project, configuration):
    ended = project.run(
        "unrecorded_params",
        f"config/{configuration}.yaml",
        PYTHONPATH=f"{project.folder}/workflow/src:{ROOT}/tests/support",
    )
    assert ended.returncode == 0, ended.stdout
    last = ended.stdout[ended.stdout.rindex("This was a dry-run") :].splitlines()[1:]
    assert re.fullmatch(r"\d+ jobs", last[0])
    assert last[1:] == []


def test_the_emulated_configuration_adds_its_launches_and_trains_nothing(project):
    found = jobs(project.run("snakemake", "-n", "--configfile", "config/emulated.yaml"))
    launches = settings.load(ROOT / "config" / "emulated.yaml").emulated
    assert found["emulate"] == len(launches)
    assert {"train", "plan", "profile_job"}.isdisjoint(found)
    assert found["table"] == len(made("emulated")["table"])


def test_every_launch_of_simultaneous_messages_is_emulated(project):
    found = jobs(project.run("snakemake", "-n", "--configfile", "config/simultaneous.yaml"))
    chosen = settings.load(ROOT / "config" / "simultaneous.yaml")
    assert len({launch.job for launch in chosen.emulated}) == found["emulate"] > 0
    assert {"train", "plan", "profile_job"}.isdisjoint(found)
    together = made("simultaneous")
    assert (found["table"], found["figure"]) == (len(together["table"]), len(together["figure"]))
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert all(any(known[name].lanes > 1 for name in launch.schemes) for launch in chosen.emulated)


def test_what_several_messages_at_once_take_is_told_to_plans_that_have_such(project):
    """Between as many ranks as it is measured for, and of the backend's own all-reduce."""
    names = ["wfbp", "mgwfbp", "ascwfbp", "kway", "tf_ps", "ring"]
    launch = f"{{model: lenet5, ranks: [2, 4], schemes: [{', '.join(names)}]}}"
    project.write("config/several.yaml", TINY.replace(LAUNCHES, f"training: [{launch}]") + "contention: {ranks: 4}\n")
    ended = project.snakemake("-n", "-p", configuration="config/several.yaml")
    assert jobs(ended)["profile_contention"] == 1
    plans = re.findall(r"python -m gradsync plan .*--output \S*/plans/(\S+)\.json .*", ended.stdout)
    assert sorted(plans) == sorted(f"lenet5-{ranks}/{name}" for ranks in (2, 4) for name in names)
    told = r"--contention=(\S+) .*--output \S*/plans/(\S+)\.json "
    points = f"{RESULTS}/profile/network/contention.json"
    assert sorted(re.findall(told, ended.stdout)) == [(points, "lenet5-4/ascwfbp"), (points, "lenet5-4/kway")]


def test_a_launch_more_is_profiled_planned_and_trained_more(project):
    launches = "training: [{model: lenet5, ranks: 2}, {model: lenet5, ranks: 4, schemes: [wfbp, mgwfbp]}]"
    project.write("config/two.yaml", TINY.replace(LAUNCHES, launches))
    found = jobs(project.snakemake("-n", configuration="config/two.yaml"))
    assert (found["profile_job"], found["train"], found["plan"]) == (2, 2, planned({"ranks": 2}) + 2)


def test_without_training_nothing_is_trained(project):
    project.write("config/none.yaml", TINY.replace(LAUNCHES, "training: []"))
    found = jobs(project.snakemake("-n", configuration="config/none.yaml"))
    assert {"train", "plan", "profile_job"}.isdisjoint(found)
    assert found["table"] == len(batches(settings.load(project.folder / "config" / "none.yaml"))["table"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (TINY + "sede: 1\n", "config/bad.yaml: sede: no such key"),
        (TINY.replace("ranks: 2", "ranks: 1"), "config/bad.yaml: training.0.ranks: "),
        (TINY.replace("ranks: 2", "ranks: 2, schemes: [nosuch]"), "training.0.schemes: scheme 'nosuch' does not exist"),
        (TINY.replace("[ddp]", "[nosuch]"), "training.0.peers: peer 'nosuch' does not exist"),
        (TINY + "schemes: config/nosuch.yaml\n", "config/nosuch.yaml: can't be read"),
        (TINY.replace("version: 1", "version: 2"), "version 2; this gradsync reads version 1"),
        (TINY.replace("[4, 8]", "[8]"), "gap_nodes must hold every one of nodes"),
        # Snakemake's own parser would end in a traceback
        (TINY + "seeds: " + "[" * 50_000 + "]" * 50_000, "config/bad.yaml: lists and mappings are nested more than 32"),
        (TINY + "since: 2026-13-45\n", "config/bad.yaml: not YAML that means anything: month must be in 1..12"),
    ],
    ids=[
        "unknown key",
        "no ranks",
        "unknown scheme",
        "unknown peer",
        "missing schemes",
        "newer",
        "nodes",
        "deep",
        "date",
    ],
)
def test_a_bad_configuration_ends_with_one_clear_message(project, text, wanted):
    project.write("config/bad.yaml", text)
    ended = project.snakemake("-n", configuration="config/bad.yaml")
    assert ended.returncode == 2
    assert ended.stdout.count(wanted) == 1, ended.stdout
    assert ended.stdout.count("\n") == 2  # the first is Snakemake's, about its profile
    assert "Traceback" not in ended.stdout
    assert "Job stats" not in ended.stdout


def test_settings_on_the_command_line_are_refused_not_ignored(project):
    ended = project.snakemake("-n", "--config", "seed=3")
    assert ended.returncode != 0
    assert "--config is not read" in ended.stdout


def test_a_missing_configuration_is_named(project):
    ended = project.snakemake("-n", configuration="config/nosuch.yaml")
    assert ended.returncode == 2
    assert "configuration 'config/nosuch.yaml' does not exist" in ended.stdout
    assert "Traceback" not in ended.stdout


def test_a_target_after_the_configuration_is_told_where_it_belongs(project):
    target = f"{RESULTS}/claims.md"
    ended = project.run("snakemake", "-n", "--cores", "2", "--configfile", "config/tiny.yaml", target)
    assert ended.returncode == 2
    assert f"{target}' too" in ended.stdout
    assert "TARGET --configfile config/tiny.yaml" in ended.stdout
    assert "Traceback" not in ended.stdout


# Real runs


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
    # the screen has a line for what starts and one for what ends; what Snakemake says of jobs is in its log file
    assert re.search(r"^\d\d:\d\d:\d\d  train lenet5-2$", ended.stdout, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  train lenet5-2: done in \d+ s; \d of 4\b", ended.stdout, re.MULTILINE)
    assert "tables of mgwfbp: training: done in" in ended.stdout
    assert "jobid" not in ended.stdout
    assert "rule train:" in own_project.log()
    folder = own_project.folder / RESULTS / "runs" / "train" / "lenet5-2"
    names = json.loads((folder / "schemes.json").read_text())
    assert names == ["wfbp", "mgwfbp", "ddp_mgwfbp", "no_communication", "one_rank"]
    called = labels(settings.load(ROOT / "config/quick.yaml"))
    wanted = {"batch": 8, "iterations": 8, "block": 4, "seeds": [3, 4], "statistics": False, "conformance": 1}
    for name in names:
        result = Result.load(folder / name / "result.json")
        assert wanted.items() <= result.settings.items()
        assert f"| {called(name)} " in own_project.read(target)
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


@pytest.mark.parametrize(
    ("target", "spoilt", "text", "wanted"),
    [
        ("tables/mgwfbp/gap.csv", "profile/resnet50/workload.json", "{", "workload.json: not a workload: "),
        ("tables/mgwfbp/training.csv", "runs/train/lenet5-2/naive/result.json", "{", "result.json: not a result: "),
        (
            "tables/mgwfbp/fig5b.csv",
            "profile/network/allreduce.csv",
            "torn\n1\n",
            "allreduce.csv: not all-reduce times",
        ),
    ],
)
def test_a_corrupt_input_of_a_table_ends_with_a_clear_error(own_project, target, spoilt, text, wanted):
    own_project.write(f"{RESULTS}/runs/train/lenet5-2/schemes.json", '["naive"]')
    own_project.write(f"{RESULTS}/profile/resnet50/workload.json", "[]")
    own_project.write(f"{RESULTS}/{spoilt}", text)
    # the inputs are taken as they are: only tables may be made
    ended = own_project.snakemake(
        "--allowed-rules", *makes(*papers.declared("mgwfbp").tables), "--", f"{RESULTS}/{target}"
    )
    assert ended.returncode != 0
    assert (
        f"gradsync: {RESULTS}" in ended.stdout
        or f"gradsync: workload {RESULTS}" in ended.stdout
        or (f"gradsync: result {RESULTS}" in ended.stdout)
    )
    assert wanted in ended.stdout
    assert "Traceback" not in ended.stdout
    assert not (own_project.folder / RESULTS / target).exists()
    (rule,) = makes(Path(target).stem)
    assert wanted in own_project.read(f"{RESULTS}/logs/table/{rule.removeprefix('table_')}.log")


# One file adds a schedule, or a collective


@pytest.fixture(scope="module")
def with_pairs(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy with a schedule and a collective more, a file each."""
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
    every = with_pairs.run(*pytest, "pairs", "--collect-only")
    for file, count in (("test_schedules_execute", 5), ("test_real_models", 8)):  # real models: 2 x 2 types x 2 ranks
        assert every.stdout.count(f"{file}.py::") >= count, every.stdout
    ended = with_pairs.run(*pytest, "(pairs or toy) and test_schedules_execute", "-rp")
    assert ended.returncode == 0, ended.stdout
    found = re.search(r"(\d+) passed, (\d+) deselected", ended.stdout)
    assert found is not None, ended.stdout
    assert int(found[1]) >= 6
    executed = "test_every_collective_executed_equals_oracle_and_plain_torch[toy]"
    assert f"PASSED tests/conformance/test_schedules_execute.py::{executed}" in ended.stdout
    assert "skipped" not in ended.stdout


def test_a_new_schedule_or_collective_is_measured_planned_and_trained_by_the_workflow(with_pairs, project):
    ended = with_pairs.snakemake("-n", "-p")
    found, before = jobs(ended), jobs(project.snakemake("-n"))
    assert found["plan"] == before["plan"] + 2
    assert found["profile_job"] == before["profile_job"]  # one launch measures all collectives
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
