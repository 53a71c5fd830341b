"""Checks before submission: against a real Slurm, and on text as Slurm prints it."""

from __future__ import annotations

import pytest
from slurm_here import needs_slurm, slurm_in

from gradsync import cli
from gradsync.errors import InputError
from gradsync.slurm import local, offers, preflight
from gradsync.slurm.local_files import Shape
from gradsync.slurm.preflight import Demand

PROFILE = "workflow/profiles/slurm/config.yaml"
CONFIG = "AccountingStorageType   = accounting_storage/{}\nMinJobAge               = {} sec\n"
PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL Default=YES QoS=N/A MaxNodes=2 MaxTime=1-00:00:00 Nodes=n[1-4] State=UP\n"
    "PartitionName=gpu AllowGroups=ALL Default=NO QoS=N/A MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=g[1-4] State=UP\n"
    "PartitionName=old AllowGroups=ALL Default=NO QoS=N/A MaxNodes=UNLIMITED MaxTime=02:30:00 Nodes=o1 State=DOWN\n"
)
NODES = """\
g1|idle|64|512000|gpu:a100:4(S:0-1)
g2|mixed|64|512000|gpu:a100:4(S:0-1)
g3|drained|64|512000|gpu:a100:4
g4|down*|8|1|(null)
"""


@pytest.fixture
def shell(slurm, monkeypatch):
    """Have this process be like a shell that uses the local Slurm."""
    for key, text in slurm.environment.items():
        monkeypatch.setenv(key, text)


@needs_slurm
def test_what_fits_passes(shell, capsys):
    assert cli.main(["slurm", "check", "--nodes", "4", "--gpus-per-node", "2", "--cpus", "4", "--memory", "4000"]) == 0
    assert capsys.readouterr().out == "partition: local\nnodes: 4\nup: 4\nfitting: 4\n"


@needs_slurm
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--partition", "gpu"], ["no partition 'gpu'; partitions: local", "`slurm_partition`"]),
        (["--nodes", "5"], ["needs 5 node(s)", "has 4 node(s), 4 of them up"]),
        (["--gpus-per-node", "8"], ["0 with 8 GPUs (`gpus_per_node`)", "the largest has 2 GPUs, 4 CPUs and 4000 MB"]),
        (["--cpus", "64"], ["0 with 64 CPUs", "`cpus_per_rank`"]),
        (["--memory", "9000"], ["0 with 9000 MB (`mem_mb`)"]),
        (["--minutes", "100000"], ["allows 1440 minutes", "`runtime`", "checkpoint"]),
    ],
)
def test_what_cannot_run_is_said_with_what_to_change(shell, capsys, arguments, parts):
    assert cli.main(["slurm", "check", *arguments]) == 2
    message = capsys.readouterr().err
    assert PROFILE in message
    assert [part for part in parts if part not in message] == []


@needs_slurm
def test_no_gpus_configured_and_nodes_that_are_down(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("g")
    running = local.start(folder, Shape(nodes=2))
    try:
        monkeypatch.setenv("SLURM_CONF", str(running.configuration))
        with pytest.raises(InputError, match=r"none has GPUs configured.*`gpus_per_node: 0`"):
            preflight.check(gpus_per_node=1)
        slurm_in(folder).ask("scontrol", "update", "nodename=n2", "state=down", "reason=x")
        with pytest.raises(InputError, match=r"2 node\(s\), 1 of them up"):
            preflight.check(nodes=2)
    finally:
        local.stop(folder)
    # and the controller is away now: an answer, no hang
    with pytest.raises(InputError, match=r"controller does not answer.*scontrol ping"):
        preflight.check()


@needs_slurm
def test_a_job_is_judged_with_the_further_arguments_that_it_will_have(shell):
    assert preflight.check(extra="--exclusive --exclude=n4").fitting == 4
    with pytest.raises(InputError, match=r"feature.*`sbatch_extra`"):
        preflight.check(extra="--constraint='nosuch'")


def test_no_slurm_and_no_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "away.conf"))
    monkeypatch.setattr(preflight, "CLIENTS", ())
    with pytest.raises(InputError, match=r"away\.conf, which does not exist"):
        preflight.check()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"no Slurm here: sinfo, .*gradsync slurm start"):
        preflight.check()


def test_a_controller_that_never_answers_is_not_waited_for(tmp_path, monkeypatch):
    """Clients of a real Slurm that don't end: scripts that sleep stand in for them."""
    for name in preflight.CLIENTS:
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(preflight, "ANSWER_SECONDS", 0.5)
    with pytest.raises(InputError, match="does not answer within"):
        preflight.check()


def test_partitions_their_limits_and_states():
    known = offers.read_partitions(PARTITIONS)
    assert preflight.choose(known, None).name == "cpu"
    assert [entry.minutes for entry in known] == [1440, None, 150]
    with pytest.raises(InputError, match=r"partition old is DOWN; partitions: cpu, gpu, old"):
        preflight.choose(known, "old")
    with pytest.raises(InputError, match="no default partition"):
        preflight.choose(known[1:], None)
    preflight.limits(known[1], Demand(nodes=99, minutes=10**6))
    preflight.limits(known[0], Demand(nodes=2, minutes=1440))
    with pytest.raises(InputError, match=r"allows 2 nodes.*`ranks_per_node`"):
        preflight.limits(known[0], Demand(nodes=3))
    with pytest.raises(InputError, match="allows 1440 minutes"):
        preflight.limits(known[0], Demand(minutes=1441))


def test_nodes_that_are_drained_or_silent_are_not_counted():
    nodes = offers.read_nodes(NODES)
    counts = preflight.fit(nodes, Demand(nodes=2, gpus=4), "gpu")
    assert (counts.nodes, counts.up, counts.fitting) == (4, 2, 2)
    with pytest.raises(InputError, match=r"needs 3 node\(s\) with 4 GPUs.*4 node\(s\), 2 of them up\. Change"):
        preflight.fit(nodes, Demand(nodes=3, gpus=4), "gpu")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0),
        ("gpu", 1),
        ("gpu:4", 4),
        ("gpu:a100:4(S:0-1)", 4),
        ("license:9,gpu:v100:2(S:0,1),gpu:k80:1", 3),
        ("gpus:3", 0),
    ],
)
def test_gpus_of_generic_resources(gres, gpus):
    assert offers.gpus_of(gres) == gpus


@pytest.mark.parametrize(
    ("accounting", "age", "command", "message"),
    [
        ("none", 300, "squeue", None),
        ("slurmdbd", 10, "sacct", None),
        ("none", 300, "sacct", "slurm-status-command: squeue"),
        ("slurmdbd", 10, "squeue", "slurm-status-command: sacct"),
        ("none", 10, "squeue", "administrator for MinJobAge of 60"),
    ],
)
def test_a_status_query_that_would_wait_for_ever_is_refused(accounting, age, command, message):
    config = CONFIG.format(accounting, age)
    if message is None:
        preflight.keeps_finished_jobs(config, command)
    else:
        with pytest.raises(InputError, match=message):
            preflight.keeps_finished_jobs(config, command)
