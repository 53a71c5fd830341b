"""Checks whether this machine can hold a testbed, and measures its links: the probe of the emulated rung."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from gradsync import topologies
from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline
from gradsync.statistics.intervals import median_interval, repeats_needed
from gradsync.testbed import privileges
from gradsync.testbed.namespaces import Testbed, refuse_rate, testbed
from gradsync.testbed.wiring import cables

TRANSFER_BYTES = 16 * 1024 * 1024
REPEATS = repeats_needed()
TARGET_SHARE = 0.93  # of the configured rate, of which the headers of packets take 4.5 %
PROBED = "bcube:2,2"  # the smallest topology with several links per host


def check(bits_per_second: float) -> dict[str, Any]:
    """`possible`, `how` (root, user namespace) and `reason`, and per link what 16 MiB transfers and round trips took.

    Raises InputError for a rate that makes no sense, and SystemExit if the command has run again (`enter`).
    """
    refuse_rate(bits_per_second)
    try:
        privileges.enter()
        return {"possible": True, "how": privileges.who(), "reason": "", "links": _probe_links(bits_per_second)}
    except (InputError, RunError) as error:
        return {"possible": False, "how": "", "reason": str(error), "links": []}


def _probe_links(bits_per_second: float) -> list[dict[str, Any]]:
    """One row per rail of the first host, each measured to a neighbour on that rail."""
    topology = topologies.parse(PROBED)
    with testbed(cables(topology), bits_per_second) as network:
        return [
            {"rail": rail, **_probe_link(network, 0, peer, rail)} for rail, peer in enumerate((1, topology.shape[0]))
        ]


def _probe_link(network: Testbed, one: int, other: int, rail: int) -> dict[str, Any]:
    program = [sys.executable, "-m", "gradsync.testbed.probe"]
    address = network.address(other, rail)
    with subprocess.Popen(
        network.on(other, [*program, "serve", address]),
        preexec_fn=lifeline.killed_with_parent(signal.SIGKILL),  # a probe is no command of ours that follows its leader
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            command = [*program, "send", address, port, str(TRANSFER_BYTES), str(REPEATS)]
            slowest = 60 + 2 * (REPEATS + 1) * TRANSFER_BYTES * 8 / network.bits_per_second
            ended = subprocess.run(
                network.on(one, command), capture_output=True, text=True, check=False, timeout=slowest
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"testbed: a link carries less than half of {network.bits_per_second:g} bit/s") from None
        finally:
            server.kill()
    if ended.returncode:
        complaint = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise RunError(f"testbed: probe of rail {rail}: {complaint[-1]}")
    measured = json.loads(ended.stdout)
    shares = [TRANSFER_BYTES * 8 / seconds / network.bits_per_second for seconds in measured["transfer_seconds"]]
    low, middle, high = median_interval(shares)
    return {
        "bits_per_second": network.bits_per_second,
        "share_of_rate": middle,
        "share_of_rate_low": low,
        "share_of_rate_high": high,
        "round_trip_seconds": median_interval(measured["round_trip_seconds"])[1],
        "met": middle >= TARGET_SHARE,
    }
