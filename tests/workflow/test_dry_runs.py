"""Dry runs of the workflow: lint, and the jobs of every configuration."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml

from batches import batches
from gradsync.configuration import schemes, settings
from gradsync.runtime import models
from gradsync.testbed import privileges
from project_copy import ROOT, path_without
from tiny_workflow import LAUNCHES, RESULTS, TINY, batches_of, jobs, planned

TESTBEDS = privileges.impossible()
needs_apptainer = pytest.mark.skipif(shutil.which("apptainer") is None, reason="apptainer is not on PATH")
needs_testbeds = pytest.mark.skipif(bool(TESTBEDS), reason=f"testbeds can't be made here: {TESTBEDS}")


def test_lint_finds_nothing(project):
    ended = project.run("snakemake", "--lint")
    assert ended.returncode == 0, ended.stdout


def test_the_quick_configuration_makes_everything_once(project):
    ended = project.run("snakemake", "-n")  # no configuration named: the quick one
    counts = jobs(ended)
    quick = yaml.safe_load((ROOT / "config" / "quick.yaml").read_text())
    profiled = [launch for launch in quick["training"] if launch.get("profile_iterations") != 0]
    counted = [launch for launch in quick["training"] if launch not in profiled]
    assert counted
    assert counts.pop("total") == sum(counts.values())
    assert counts == {
        "all": 1,
        "site": 1,
        "count": 1,
        "plan_counted": sum(planned(launch) for launch in counted),
        "profile_job": len(profiled),
        "profile_model": len(quick["profiles"]),
        "profile_network": 1,
        "profile_contention": 1,
        "profile_selection": 1,
        "profile_loading": 1,
        "plan": sum(planned(launch) for launch in profiled),
        "train": len(quick["training"]),
        "plan_elastic": sum(len(launch["methods"]) for launch in quick["elastic"]),
        "train_elastic": len(quick["elastic"]),
        "table": len(batches_of("quick")["table"]),
        "figure": len(batches_of("quick")["figure"]),
        "claims": 1,
        "track": 1,
    }
    assert "results/quick/claims.json" in ended.stdout
    wanted = re.search(r"^(?:local)?rule all:\n +input: (.*)$", ended.stdout, re.MULTILINE)
    assert wanted is not None
    runs = re.findall(r"results/quick/runs/\w+/[^/]+/schemes\.json", wanted[1])  # one that was deleted runs again
    assert len(set(runs)) == len(quick["training"]) + len(quick["elastic"])
    assert not (project.folder / "results").exists()


@pytest.mark.deep
@pytest.mark.parametrize("apptainer", [False, pytest.param(True, marks=needs_apptainer)], ids=["without", "apptainer"])
def test_the_full_configuration_is_every_model_on_every_number_of_ranks(project, capsys, tmp_path, apptainer):
    """What `snakemake --profile slurm` would submit, and its cost; shown on machines that could run none of it, too."""
    path = {} if apptainer else {"PATH": path_without("apptainer", tmp_path / "bin")}
    ended = project.run("snakemake", "-n", "--profile", "slurm", **path)
    counts = jobs(ended)
    assert ("only a dry run is possible here" in ended.stdout) is not apptainer
    estimated = project.run("gradsync", "estimate", "--config", "config/full.yaml", "--json")
    estimate = json.loads(estimated.stdout)
    with capsys.disabled():
        print(f"\nfull configuration: {counts['total']} jobs, about {estimate['gpu_hours']:.0f} GPU hours")
    full = [name for name, model in models.MODELS.items() if not model.reduced]
    sizes = [(model, ranks) for model in full for ranks in (4, 8, 16, 32, 64)]
    sizes += [("resnet50", 2), ("googlenet", 2)]  # as in Fig. 6 and 7 of the MG-WFBP paper
    launches = [f"{model}-{ranks}" for model, ranks in sizes]
    sparse = ["resnet18-8-sparse", "resnet50-64-recipe"]  # which are not profiled
    assert sorted(launch["job"] for launch in estimate["launches"]) == sorted([*launches, *sparse])
    assert (counts["train"], counts["profile_job"]) == (len(launches) + len(sparse), len(launches))
    assert counts["plan"] == sum(planned({"ranks": ranks}, "cuda") for _, ranks in sizes)
    assert (counts["cluster_profile"], counts["image"]) == (1, 1)
    assert counts["figure"] == len(batches_of("full")["figure"])
    assert re.search(r"resources: .*mpi=srun, tasks=64, nodes=64, slurm_extra=--ntasks-per-node=1\n", ended.stdout)
    assert estimate["gpu_hours"] == pytest.approx(sum(launch["gpu_hours"] for launch in estimate["launches"]))


@pytest.mark.parametrize("testbeds", [False, pytest.param(True, marks=needs_testbeds)], ids=["without", "testbeds"])
def test_benchmarks_are_made_on_demand_only(project, tmp_path, testbeds):
    path = {} if testbeds else {"PATH": path_without("ip", tmp_path / "bin")}
    ended = project.snakemake("-n", "benchmark", **path)
    counts = {"benchmark": 1, "benchmark_one": 8, **({"benchmark_testbed": 2} if testbeds else {})}
    assert jobs(ended) == {**counts, "total": sum(counts.values())}
    assert ("no benchmark on testbeds: the command 'ip' is missing" in ended.stdout) is not testbeds


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
    counts = jobs(project.run("snakemake", "-n", "--configfile", "config/emulated.yaml"))
    launches = settings.load(ROOT / "config" / "emulated.yaml").emulated
    assert counts["emulate"] == len(launches)
    assert {"train", "plan", "profile_job"}.isdisjoint(counts)
    assert counts["table"] == len(batches_of("emulated")["table"])


def test_methods_are_trained_between_emulated_hosts_if_a_launch_has_a_testbed(project):
    counts = jobs(project.run("snakemake", "-n", "--configfile", "config/elastic_emulated.yaml"))
    launches = settings.load(ROOT / "config" / "elastic_emulated.yaml").elastic
    assert counts["emulate_elastic"] == len(launches)
    assert {"train_elastic", "train", "emulate"}.isdisjoint(counts)


def test_every_launch_of_simultaneous_messages_is_emulated(project):
    counts = jobs(project.run("snakemake", "-n", "--configfile", "config/simultaneous.yaml"))
    config = settings.load(ROOT / "config" / "simultaneous.yaml")
    assert len({launch.job for launch in config.emulated}) == counts["emulate"] > 0
    assert {"train", "plan", "profile_job"}.isdisjoint(counts)
    config_batches = batches_of("simultaneous")
    assert (counts["table"], counts["figure"]) == (len(config_batches["table"]), len(config_batches["figure"]))
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    assert all(any(known[name].lanes > 1 for name in launch.schemes) for launch in config.emulated)


def test_what_several_messages_at_once_take_is_told_to_plans_that_have_such(project):
    """Between as many ranks as it is measured for, and of the backend's own all-reduce."""
    names = ["wfbp", "mgwfbp", "ascwfbp", "kway", "tf_ps", "ring"]
    launch = f"{{model: lenet5, ranks: [2, 4], schemes: [{', '.join(names)}]}}"
    project.write("config/several.yaml", TINY.replace(LAUNCHES, f"training: [{launch}]") + "contention: {ranks: 4}\n")
    ended = project.snakemake("-n", "-p", configuration="config/several.yaml")
    assert jobs(ended)["profile_contention"] == 1
    plans = re.findall(r"python -m gradsync plan .*--output \S*/plans/(\S+)\.json .*", ended.stdout)
    assert sorted(plans) == sorted(f"lenet5-{ranks}/{name}" for ranks in (2, 4) for name in names)
    with_contention = r"--contention=(\S+) .*--output \S*/plans/(\S+)\.json "
    points = f"{RESULTS}/profile/network/contention.json"
    assert sorted(re.findall(with_contention, ended.stdout)) == [
        (points, "lenet5-4/ascwfbp"),
        (points, "lenet5-4/kway"),
    ]


def test_a_launch_more_is_profiled_planned_and_trained_more(project):
    launches = "training: [{model: lenet5, ranks: 2}, {model: lenet5, ranks: 4, schemes: [wfbp, mgwfbp]}]"
    project.write("config/two.yaml", TINY.replace(LAUNCHES, launches))
    counts = jobs(project.snakemake("-n", configuration="config/two.yaml"))
    assert (counts["profile_job"], counts["train"], counts["plan"]) == (2, 2, planned({"ranks": 2}) + 2)


def test_without_training_nothing_is_trained(project):
    project.write("config/none.yaml", TINY.replace(LAUNCHES, "training: []"))
    counts = jobs(project.snakemake("-n", configuration="config/none.yaml"))
    assert {"train", "plan", "profile_job"}.isdisjoint(counts)
    assert counts["table"] == len(batches(settings.load(project.folder / "config" / "none.yaml"))["table"])
