"""What a job asks Slurm for, how its ranks are started, and their place among each other."""

from __future__ import annotations

import shlex
import socket

import pytest

from gradsync.errors import InputError, RunError
from gradsync.runtime import launch as runtime_launch
from gradsync.slurm import rendezvous
from gradsync.slurm.launch import Cluster, filled

STEP = {
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "nowhere-in-this-world[003-006]",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_CPUS_PER_TASK": "3",
}


def test_without_the_profile_ranks_are_started_here():
    assert Cluster.read(None) is None
    assert Cluster.read(["mem_mb=max(2*input.size_mb, 1000)"]) is None  # Snakemake's own defaults


def test_settings_of_the_profile_are_read_with_their_commas_and_equal_signs():
    read = Cluster.read(["runtime=30", "ranks_per_node=4", "hca='=mlx5_0,mlx5_1'", "interface=None", "srun_extra="])
    assert read == Cluster(ranks_per_node=4, hca="=mlx5_0,mlx5_1")


@pytest.mark.parametrize("entry", ["ranks_per_node=0", "ranks_per_node=two", "cpus_per_rank=-1", "gpus_per_node=1.5"])
def test_a_setting_that_is_no_number_is_named(entry):
    with pytest.raises(InputError, match=rf"slurm/config.yaml: default-resources: {entry}"):
        Cluster.read(["ranks_per_node=2", entry])


def test_a_rank_has_a_gpu_of_its_own():
    with pytest.raises(InputError, match=r"ranks_per_node=8 is more than gpus_per_node=4"):
        Cluster.read(["ranks_per_node=8", "gpus_per_node=4"])
    assert Cluster.read(["ranks_per_node=8", "gpus_per_node=0"]) == Cluster(ranks_per_node=8)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--exclusive --constraint=a100", "--constraint is refused there, .* sets the node constraints itself"),
        ("-C a100", "-C is refused there"),
        ("--qos high", "--qos is refused there"),
        ("--time=30", "sets the runtime/time limit itself"),
        ("--gres=gpu:4", "--gres is refused there"),
    ],
)
def test_what_the_executor_sets_itself_is_refused_before_a_job_is_submitted(words, what):
    with pytest.raises(InputError, match=rf"default-resources: sbatch_extra: .*{what.removeprefix('.*')}"):
        Cluster.read(["ranks_per_node=2", f"sbatch_extra={words}"])
    allowed = "--exclusive --exclude=node7 --reservation=rack-c"
    assert Cluster.read(["ranks_per_node=2", f"sbatch_extra={allowed}"]).sbatch_extra == allowed


@pytest.mark.parametrize(
    ("ranks", "nodes", "options"),
    [
        (1, 1, "--gpus-per-node=1 --exclusive"),
        (2, 1, "--ntasks-per-node=2 --gpus-per-node=2 --exclusive"),
        (4, 1, "--ntasks-per-node=4 --gpus-per-node=4 --exclusive"),
        (6, 2, "--ntasks-per-node=4 --gpus-per-node=4 --exclusive"),
    ],
)
def test_a_job_asks_for_the_nodes_and_gpus_that_its_ranks_take(ranks, nodes, options):
    cluster = Cluster(ranks_per_node=4, gpus_per_node=4, sbatch_extra="--exclusive")
    assert cluster.nodes(ranks) == nodes
    assert cluster.sbatch(ranks) == options


def test_ranks_are_started_in_the_image_with_the_network_that_is_set():
    cluster = Cluster(2, 3, 4, interface="ib0", hca="mlx5_0,mlx5_1", cpu_bind="cores", srun_extra="--mpi=none -K")
    words = filled(cluster.srun("images/a b.sif", "--nv --bind '/d a:/d'"), 8, 2)
    before = ["env", "GLOO_SOCKET_IFNAME=ib0", "NCCL_SOCKET_IFNAME=ib0", "NCCL_IB_HCA=mlx5_0,mlx5_1"]
    step = ["srun", "--nodes=4", "--ntasks=8", "--ntasks-per-node=2", "--distribution=block"]
    step += ["--kill-on-bad-exit=1", "--wait=20", "--cpus-per-task=3", "--cpu-bind=cores"]
    image = ["apptainer", "exec", "--nv", "--bind", "/d a:/d", "images/a b.sif"]
    assert words == [*before, *step, "--mpi=none", "-K", *image]


def test_what_a_job_exports_survives_the_shell():
    shell = Cluster(ranks_per_node=2, hca="a b").exported("image.sif", "--nv")
    export, *words, end = shlex.split(shell.replace("; ", " ;"))
    assert (export, end) == ("export", ";")
    variables = dict(word.split("=", 1) for word in words)
    assert filled(variables["GRADSYNC_LAUNCH"], 3, int(variables["GRADSYNC_RANKS_PER_NODE"]))[1] == "NCCL_IB_HCA=a b"


def test_a_task_of_a_step_is_a_rank():
    environment = dict(STEP)
    rendezvous.adopt(environment)
    assert {name: environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")} == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "OMP_NUM_THREADS": "3",
    }
    # the nodes' names do not resolve: the address that srun was started at, which is the first node's in a batch job
    assert environment["MASTER_ADDR"] == "127.0.0.1"
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert int(environment["MASTER_PORT"]) == rendezvous.port(41, 2)


def test_a_name_that_resolves_is_where_ranks_meet():
    environment = {**STEP, "SLURM_STEP_NODELIST": socket.gethostname()}
    rendezvous.adopt(environment)
    assert environment["MASTER_ADDR"] == socket.gethostname()


def test_ranks_of_one_node_meet_where_no_other_reaches_them():
    environment = {**STEP, "SLURM_STEP_NODELIST": socket.gethostname(), "SLURM_STEP_NUM_NODES": "1"}
    rendezvous.adopt(environment)
    assert environment["MASTER_ADDR"] == "127.0.0.1"
    assert {environment[name] for name in rendezvous.INTERFACES} == {"lo"}


@pytest.mark.parametrize(
    "changed",
    [{"SLURM_STEP_NUM_TASKS": "1"}, {"SLURM_STEP_ID": None}, {"SLURM_STEP_NUM_TASKS": None}, {"RANK": "0"}],
    ids=["an ordinary job's step", "a batch script", "no step", "a rank already"],
)
def test_what_is_no_task_of_several_is_left_alone(changed):
    environment = {key: value for key, value in {**STEP, **changed}.items() if value is not None}
    before = dict(environment)
    rendezvous.adopt(environment)
    assert environment == before


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n7", "n1"),
        ("n[1-4]", "n1"),
        ("gpu[003-007,9],login", "gpu003"),
        ("rack1-n[08,11]-ib,x", "rack1-n08-ib"),
        ("[10-12]", "10"),
        ("r[2-3]n[04-07]", "r2n04"),
    ],
)
def test_the_first_host_of_a_list(nodes, first):
    assert rendezvous.first_node(nodes) == first


@pytest.mark.parametrize("nodes", ["", "n[", "n[1-"])
def test_a_list_that_is_none_is_refused(nodes):
    with pytest.raises(InputError, match="is no list of nodes"):
        rendezvous.first_node(nodes)


def test_a_step_without_slurms_variables_is_refused():
    with pytest.raises(InputError, match="SLURM_LOCALID"):
        rendezvous.adopt({key: value for key, value in STEP.items() if key != "SLURM_LOCALID"})


def test_ports_of_steps_lie_below_those_that_clients_get():
    ports = {rendezvous.port(job, step) for job in range(1000, 1100) for step in range(rendezvous.STEPS)}
    assert len(ports) == 1600
    assert min(ports) >= 1024
    assert max(rendezvous.port(job, step) for job in range(3000) for step in range(16)) < 32768


def test_a_launcher_ends_srun_that_still_waits_after_a_rank_has_failed(tmp_path, monkeypatch):
    """srun waits for ever for a rank whose slurmstepd was killed."""
    stand_in = tmp_path / "srun"
    stand_in.write_text("echo 'srun: error: n2: task 1: Exited with exit code 1' >&2; exec sleep 600 2>&1\n")
    monkeypatch.setattr(runtime_launch, "GRACE_SECONDS", 0.1)
    monkeypatch.setenv("GRADSYNC_LAUNCH", f"sh {stand_in}")
    with pytest.raises(RunError, match="rank 1 on n2: Exited with exit code 1; the other ranks were ended"):
        runtime_launch.launch(["train"], 2)
