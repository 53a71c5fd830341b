"""A real Slurm on this machine: it starts, refuses, runs steps on four nodes, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from slurm_here import left_behind, needs_slurm, slurm_in, value

from gradsync import cli
from gradsync.errors import InputError, RunError
from gradsync.slurm import installed, local, local_files, machine, processes
from gradsync.slurm.launch import Cluster, filled
from gradsync.slurm.local_files import Shape
from waiting import HANGS_SECONDS, until

pytestmark = needs_slurm


def test_a_step_on_four_nodes_runs_a_task_on_each(slurm, tmp_path):
    slurm.ask("srun", "--nodes=4", "--ntasks=4", "sh", "-c", f"env > {tmp_path}/$SLURM_PROCID")
    ranks = [(tmp_path / str(rank)).read_text() for rank in range(4)]
    assert sorted(value(text, "SLURMD_NODENAME") for text in ranks) == ["n1", "n2", "n3", "n4"]
    for rank, text in enumerate(ranks):
        variables = {
            key: value(text, f"SLURM_{key}") for key in ("PROCID", "NTASKS", "STEP_NUM_TASKS", "LOCALID", "STEP_ID")
        }
        assert variables == {"PROCID": str(rank), "NTASKS": "4", "STEP_NUM_TASKS": "4", "LOCALID": "0", "STEP_ID": "0"}
        assert value(text, "SLURM_STEP_NODELIST") == "n[1-4]"


def test_ranks_of_a_node_have_consecutive_numbers_whatever_is_usual(slurm, tmp_path):
    """Ranks are numbered as topologies number them."""
    step = filled(Cluster(ranks_per_node=2).srun(), 4, 2)
    script = f"echo $SLURMD_NODENAME > {tmp_path}/$SLURM_PROCID"
    slurm.ask("env", "SLURM_DISTRIBUTION=cyclic", *step, "sh", "-c", script)
    first, second, third, fourth = ((tmp_path / str(rank)).read_text() for rank in range(4))
    assert first == second != third == fourth


def test_nodes_claim_what_they_are_told(slurm):
    assert slurm.ask("sinfo", "-h", "-o", "%D %c %m %G").split() == ["4", "4", "4000", "gpu:2"]


def test_a_second_start_is_refused_and_tells_how_to_use_the_first(slurm):
    with pytest.raises(InputError, match=r"already runs in .*slurmctld \d+.*export SLURM_CONF=.*slurm stop --folder"):
        local.start(slurm.folder)
    assert len(local.status(slurm.folder).processes) == 6


def test_start_prints_a_line_to_evaluate_and_stop_ends_all(tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp("c")
    assert cli.main(["slurm", "start", "--folder", str(folder), "--nodes", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f'export SLURM_CONF={folder}/slurm.conf PATH={folder}/bin:"$PATH"\n'
    assert "gradsync slurm stop" in printed.err
    command = ["bash", "-c", printed.out + "command -v srun; sinfo -h -o %T"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=HANGS_SECONDS).stdout.split() == [
        f"{folder}/bin/srun",
        "idle",
    ]
    assert cli.main(["slurm", "stop", "--folder", str(folder)]) == 0
    assert cli.main(["slurm", "stop", "--folder", str(folder)]) == 0  # again: nothing to do
    assert "none" in capsys.readouterr().out.splitlines()[-1]
    assert not left_behind(folder)


def test_after_a_crash_stop_ends_the_rest_and_the_jobs_and_a_start_works(tmp_path_factory):
    folder = tmp_path_factory.mktemp("k")
    local.start(folder, Shape(nodes=2))
    slurm = slurm_in(folder)
    for node in ("n1", "n2"):
        slurm.ask("sbatch", f"--nodelist={node}", "--wrap", f"touch {folder}/{node}; sleep 1000 & wait")
    until(lambda: (folder / "n1").exists() and (folder / "n2").exists())
    for step in processes.steps(folder)[:1]:  # orphans that job's processes
        os.kill(step.pid, signal.SIGKILL)
    for name in ("slurmctld", "n1"):
        os.kill(slurm.process(name).pid, signal.SIGKILL)
    ended = {process.name for process in local.stop(folder)}
    assert {"munged", "n2", "sleep"} <= ended
    assert not left_behind(folder)
    assert local.stop(folder) == []
    assert set(local.start(folder, Shape(nodes=2)).nodes) == {"n1", "n2"}
    local.stop(folder)
    assert not left_behind(folder)


def test_a_reused_process_id_is_never_hit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r")
    other = subprocess.Popen(["sleep", "60"])
    try:
        place = local_files.at(folder)
        place.lock.touch()
        now = processes.identify("slurmctld", other.pid)
        processes.save([processes.Process("slurmctld", other.pid, now.started - 1)], place.processes)
        assert local.status(folder).processes == []
        assert local.stop(folder) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_what_cannot_be_started_says_so(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("w")
    (folder / "mine").mkdir()
    (folder / "mine" / "state").mkdir()
    with pytest.raises(InputError, match="holds other things"):
        local.start(folder / "mine")
    with pytest.raises(InputError, match=r"--folder"):
        local.start(folder / ("x" * 90))
    (folder / "file").touch()
    with pytest.raises(InputError, match="not a folder"):
        local.start(folder / "file")
    monkeypatch.setattr(machine, "PORTS_TO", machine.PORTS_FROM + 2)
    with pytest.raises(InputError, match="needs 5 free TCP ports"):
        local.start(folder / "p")
    monkeypatch.setattr(installed, "SBIN", ())
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(InputError, match=r"munged is not installed.*apt-get install slurm-wlm munge"):
        local.start(folder / "s")


def test_a_port_that_is_taken_meanwhile_ends_the_start_and_leaves_nothing(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("t")
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        ports = machine.free_ports(2)
        monkeypatch.setattr(machine, "free_ports", lambda count: [listener.getsockname()[1], *ports])
        with pytest.raises(RunError, match=r"(?s)slurmctld ended.*in use"):
            local.start(folder, Shape(nodes=2))
    assert not left_behind(folder)


def test_it_runs_as_an_ordinary_user(tmp_path_factory, slurm):
    """Root runs it as `nobody`, with the system's Python, which has nothing but the standard library."""
    if os.getuid() != 0:
        pytest.skip("not root: the other tests run as an ordinary user already")
    folder, temporary = tmp_path_factory.mktemp("u"), Path(tempfile.gettempdir())
    for parent in (folder, *folder.parents):
        if parent.owner() == "root" and parent != temporary and parent.is_relative_to(temporary):
            parent.chmod(0o755)
    os.chown(folder, 65534, 65534)
    (folder / "lock").touch()
    os.chown(folder / "lock", 65534, 65534)
    program = (
        "import sys, subprocess\nfrom pathlib import Path\n"
        "from gradsync.slurm import installed, local\nfrom gradsync.slurm.local_files import Shape\n"
        "running = local.start(Path(sys.argv[1]), Shape(nodes=2))\n"
        "try:\n"
        "    told = installed.environment(running.configuration)\n"
        "    subprocess.run(['srun', '-N2', '-n2', 'id', '-un'], env=told)\n"
        "finally:\n    local.stop(Path(sys.argv[1]))\n"
    )
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    done = subprocess.run(
        ["runuser", "-u", "nobody", "--", python, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        env={**os.environ, "PYTHONPATH": str(Path(local.__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
    )
    assert done.stdout.split() == ["nobody", "nobody"], done.stderr
    assert not left_behind(folder)
