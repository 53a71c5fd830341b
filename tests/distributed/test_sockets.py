"""Ranks on this machine listen at loopback alone."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from gradsync.runtime.links import IFF_RUNNING, _flags
from gradsync.slurm.machine import free_ports
from sockets import while_it_runs
from waiting import HANGS_SECONDS

SIOCGIFADDR = 0x8915  # of linux/sockios.h
TRAINED = ("--peer", "ddp", "--iterations", "4", "--block", "2")
ARGUMENTS = {
    "train": ("train", "--ranks", "2", "--batch", "4", *TRAINED),
    "measure": ("measure", "allreduce", "--ranks", "2", "--largest", "4194304"),
}


def other_interface() -> str:
    """An interface that others may reach; loopback if the machine has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                fcntl.ioctl(probe, SIOCGIFADDR, name.encode().ljust(40, b"\0"))
                if name != "lo" and _flags(name, probe) & IFF_RUNNING:
                    return name
    return "lo"


@pytest.mark.deep
@pytest.mark.parametrize("command", ARGUMENTS)
def test_ranks_of_a_launch_listen_on_loopback_only(tmp_path, command):
    """They do so even if the environment has other jobs take another interface."""
    output = str(tmp_path / "out")
    sockets = while_it_runs(
        [sys.executable, "-m", "gradsync", *ARGUMENTS[command], "--output", output],
        tmp_path,
        {**os.environ, "GLOO_SOCKET_IFNAME": other_interface()},
    )
    assert len({each.pid for each in sockets}) >= 2  # both ranks: of Gloo, and the store of the rendezvous
    assert {each for each in sockets if not each.loopback} == set()


def test_ranks_that_others_start_listen_where_they_meet(tmp_path):
    """As torchrun or srun do: no socket is handed to rank 0, which listens at MASTER_ADDR and not at every address."""
    (port,) = free_ports(1)
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "gradsync", *ARGUMENTS["measure"], "--output", str(tmp_path / "out")]
    other = subprocess.Popen(command, env={**os.environ, **variables, "RANK": "1"})
    try:
        sockets = while_it_runs(command, tmp_path, {**os.environ, **variables, "RANK": "0"})
        assert other.wait(HANGS_SECONDS) == 0
    finally:
        other.kill()
        other.wait()
    assert port in {each.port for each in sockets}
    assert {each for each in sockets if not each.loopback} == set()
