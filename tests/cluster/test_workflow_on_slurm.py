"""`snakemake --profile slurm` on four nodes with jobs in the image, against the same without either."""

from __future__ import annotations

import json
import re

import pytest
from slurm_here import Slurm, needs_slurm

from batches import rules
from gradsync.configuration import settings
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.plan import Plan
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from project_copy import ROOT, Project
from waiting import HANGS_SECONDS, until

IMAGE = ROOT / "containers" / "cpu.sif"
needs_image = pytest.mark.skipif(not IMAGE.is_file(), reason="no containers/cpu.sif: build it with `make image`")
pytestmark = [needs_slurm, needs_image]
# Plans of these schemes don't depend on what is measured.
SMALL = """\
version: 1
name: small
container: CONTAINER
network: {ranks: [2], smallest: 64, largest: 4096}
training:
  - {model: lenet5, ranks: 2, batch: 8, iterations: 8, block: 4, peers: [ddp], conformance: 1, schemes: [wfbp, single],
     profile_iterations: 2}
  - {model: lenet5, ranks: 4, batch: 8, iterations: 8, block: 4, conformance: 1, schemes: [wfbp, single]}
"""
LONG = """\
version: 1
name: long
container: CONTAINER
training:
  - {model: lenet5, ranks: 2, batch: 8, iterations: 200, epochs: 3, block: 4, conformance: 1, schemes: [wfbp, single],
     references: false, checkpoint_seconds: 1}
"""


# The local nodes are small, a failure shall be seen at once, and looks for ended jobs are frequent.
SETTINGS = {
    "mem_mb": 2000,
    "cpus_per_rank": 1,
    "retries": 0,
    "slurm-init-seconds-before-status-checks": 1,
    "seconds-between-status-checks": 1,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy whose settings fit the local nodes, with profiles of most launches: measuring takes long."""
    copy = Project(tmp_path_factory.mktemp("project"))
    profile = copy.read("slurm/config.yaml")
    for key, value in SETTINGS.items():
        profile = re.sub(rf"(?m)^( *{key}:) +\S+", rf"\1 {value}", profile)
    copy.write("slurm/config.yaml", profile)
    ranks_given = {"small": 4, "long": 2}  # two ranks of the small one are profiled for real
    for name, text in (("small", SMALL), ("long", LONG)):
        copy.write(f"config/{name}.yaml", text.replace("CONTAINER", str(IMAGE)))
        give_profile(copy, f"results/{name}/profile/lenet5-{ranks_given[name]}", ranks_given[name])
    return copy


def give_profile(copy: Project, folder: str, ranks: int) -> None:
    layers = tuple(
        Layer(name=name, bytes=4 * parameter.numel(), backward_seconds=1e-3)
        for name, parameter in reversed(list(models.build("lenet5", 0).named_parameters()))
    )
    copy.write(f"{folder}/workload.json", Workload(name="lenet5", forward_seconds=1e-3, layers=layers).to_json())
    copy.write(f"{folder}/allreduce.csv", "bytes,seconds\n64,1e-3\n4096,1e-3\n16777216,2e-2\n")
    slowed = InterferencePoint(bytes=1024, computation=1.5, communication=1.25)
    copy.write(f"{folder}/interference.json", Interference(ranks=ranks, points=(slowed,)).to_json())


def on_slurm(slurm: Slurm, project: Project, name: str, *targets: str) -> tuple[int, str]:
    """Exit status and output of a run there."""
    environment = {**slurm.environment, "PYTHONPATH": str(project.folder / "workflow" / "src")}
    rules_of_settings = rules(settings.load(project.folder / "config" / f"{name}.yaml"))
    allowed = ("--allowed-rules", "profile_job", "plan", "train", *rules_of_settings, "--")
    command = ("--profile", "slurm", "--configfile", f"config/{name}.yaml", *allowed, *targets)
    run = Slurm(slurm.folder, environment).snakemake(project.folder, *command)
    status = run.wait(HANGS_SECONDS)
    return status, project.read("run.log")


def result(project: Project, folder: str) -> dict:
    return json.loads(project.read(f"{folder}/result.json"))


@pytest.mark.parametrize(
    ("key", "value", "configuration", "wanted"),
    [
        ("slurm_partition", "gpu", "small", "no partition 'gpu'; partitions: local. Set `slurm_partition`"),
        ("mem_mb", 900_000, "small", "the largest has 2 GPUs, 4 CPUs and 4000 MB. Change these settings"),
        ("ranks_per_node", "one", "small", "default-resources: ranks_per_node=one: a number, at least 1"),
        ("gpus_per_node", 0, "gpus", "has device: cuda, but gpus_per_node is 0"),
    ],
)
def test_what_the_cluster_cannot_give_is_refused_before_anything_is_submitted(
    slurm, project, key, value, configuration, wanted
):
    project.write("config/gpus.yaml", SMALL.replace("CONTAINER", f"{IMAGE}\ndevice: cuda"))
    fitting = project.read("slurm/config.yaml")
    try:
        project.write("slurm/config.yaml", re.sub(rf"(?m)^( *{key}:) +\S+", rf"\1 {value}", fitting))
        status, output = on_slurm(slurm, project, configuration, "results/small/tables/mgwfbp/training.md")
    finally:
        project.write("slurm/config.yaml", fitting)
    assert status != 0
    assert wanted in output
    assert "Traceback" not in output
    assert not slurm.ask("squeue", "-h").strip()


def test_a_rank_without_a_gpu_says_so_at_the_end_of_the_run(slurm, project):
    """The nodes claim GPUs, with nothing behind them, and the image has no CUDA."""
    project.write(
        "config/gpus.yaml", SMALL.replace("CONTAINER", f"{IMAGE}\ndevice: cuda").replace("name: small", "name: gpus")
    )
    give_profile(project, "results/gpus/profile/lenet5-2", 2)
    fitting = project.read("slurm/config.yaml")
    try:
        project.write("slurm/config.yaml", fitting.replace("gpus_per_node: 0", "gpus_per_node: 1"))
        status, output = on_slurm(slurm, project, "gpus", "results/gpus/runs/train/lenet5-2/schemes.json")
    finally:
        project.write("slurm/config.yaml", fitting)
    assert status != 0
    assert re.search(
        r"train job=lenet5-2 \(Slurm \d+, FAILED\): own failure: .*the ranks refused .*built for processors only",
        output,
    )


def test_without_slurm_jobs_run_in_the_image_on_this_machine(project):
    """The image is their input, and what ran in it says so."""
    give = ("--cores", "2", "--configfile", "config/small.yaml", "--sdm", "apptainer", "--apptainer-args=--no-privs")
    target = "results/small/profile/network/allreduce.csv"
    ended = project.run("snakemake", *give, "--", target)
    assert ended.returncode == 0, ended.stdout
    assert f"input: {IMAGE}" in project.log()
    assert f'image: "{IMAGE.name}"' in project.read(target)


def test_jobs_in_the_image_on_four_nodes_give_what_this_machine_gives_without(slurm, project):
    launches = [f"results/small/runs/train/lenet5-{ranks}" for ranks in (2, 4)]
    status, output = on_slurm(slurm, project, "small", "results/small/figures/mgwfbp/training.svg")
    assert status == 0, output
    assert "train lenet5-4: done in" in output
    assert "rule profile_job" in project.log()
    assert re.search(r"mpi=srun, tasks=4, nodes=4", project.log())
    for folder, ranks in zip(launches, (2, 4), strict=True):
        plans = [f"results/small/plans/lenet5-{ranks}/{scheme}.json" for scheme in ("wfbp", "single")]
        options = ["--model", "lenet5", "--batch", "8", "--iterations", "8", "--block", "4", "--conformance", "1"]
        arguments = [part for plan in plans for part in ("--plan", plan)]
        local = f"here-{ranks}"
        ended = project.run("gradsync", "train", *options, "--ranks", str(ranks), *arguments, "--output", local)
        assert ended.returncode == 0, ended.stdout
        for scheme in ("wfbp", "single"):
            theirs, ours = result(project, f"{folder}/{scheme}"), result(project, f"{local}/{scheme}")
            assert theirs["provenance"]["image"] == IMAGE.name
            assert "image" not in ours["provenance"]
            assert theirs["conformance"] == ours["conformance"]  # parameters bit for bit
            assert theirs["summary"]["final_loss"] == ours["summary"]["final_loss"]


def test_a_cancelled_job_is_reported_and_the_same_command_goes_on(slurm, project):
    folder = project.folder / "results/long/runs/train/lenet5-2"
    environment = {**slurm.environment, "PYTHONPATH": str(project.folder / "workflow" / "src")}
    command = ("--profile", "slurm", "--configfile", "config/long.yaml", "--allowed-rules", "plan", "train", "--")
    target = "results/long/runs/train/lenet5-2/schemes.json"
    run = Slurm(slurm.folder, environment).snakemake(project.folder, *command, target)
    until(lambda: (folder / "checkpoint" / "latest.json").is_file())
    (job,) = [line.split()[0] for line in slurm.ask("squeue", "-h", "-o", "%i %k").splitlines() if "train" in line]
    slurm.ask("scancel", job)
    assert run.wait(HANGS_SECONDS) != 0
    output = project.read("run.log")
    assert re.search(rf"train.*lenet5-2.*Slurm {job}.*cancelled", output), output
    assert "The same command again runs only what is missing" in output
    done = int(json.loads((folder / "checkpoint" / "latest.json").read_text())["number"])
    assert done >= 1
    # the rest of it, with fewer iterations left than there were
    run = Slurm(slurm.folder, environment).snakemake(project.folder, *command, target)
    assert run.wait(HANGS_SECONDS) == 0, project.read("run.log")
    assert "going on from the checkpoint at iteration" in project.read("results/long/logs/train/lenet5-2.log")
    assert re.findall(r"^(\w+) +\d+$", project.log(), re.MULTILINE) == ["train", "total"]
    assert Plan.from_json(project.read("results/long/plans/lenet5-2/wfbp.json"), "plan").ranks == 2
    assert not (folder / "checkpoint").exists()
