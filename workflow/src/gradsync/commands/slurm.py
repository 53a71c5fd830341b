"""`gradsync slurm`: a local Slurm to try, checks before a cluster is asked for anything, why jobs failed."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.slurm import local, machine, preflight, states
from gradsync.slurm.local_files import Shape


def slurm(options: argparse.Namespace) -> dict[str, Any] | None:
    """Start or stop a local Slurm, check a cluster before jobs are submitted, tell why jobs failed."""
    actions = {"start": _start, "stop": _stop, "status": _status, "check": _check, "why": _why}
    return actions[options.action](options)


def _start(options: argparse.Namespace) -> dict[str, Any] | None:
    for name in ("nodes", "cpus", "memory"):
        given = getattr(options, name)
        if given is not None and given < 1:
            raise InputError(f"--{name} must be at least 1")
    if options.gpus_per_node < 0:
        raise InputError("--gpus-per-node can't be negative")
    memory = options.memory or machine.memory_each(options.nodes)
    shape = Shape(nodes=options.nodes, cpus=options.cpus, gpus=options.gpus_per_node, memory=memory)
    running = local.start(options.folder, shape)
    if options.json:
        return _described(running)
    print(local.exports(running.configuration), flush=True)
    print(
        f"A Slurm of {options.nodes} nodes runs ({options.cpus} CPUs, {memory} MB, {options.gpus_per_node} GPUs each;"
        f" all on this machine). For this shell: the line above, or from the start"
        f'\n  eval "$(gradsync slurm start ...)"\nThen: sinfo; snakemake --profile slurm'
        f"\nTo end it: gradsync slurm stop --folder {options.folder}",
        file=sys.stderr,
    )
    address = machine.address()
    if not machine.is_loopback(address):
        print(
            f"Note: other machines reach its ports on {address or 'all addresses of this one'}; its munge key guards"
            f" them. Slurm listens where the host's own name leads: for loopback alone, let /etc/hosts say"
            f" `{machine.LOOPBACK} {socket.gethostname()}` first, and start it again.",
            file=sys.stderr,
        )
    return None


def _stop(options: argparse.Namespace) -> dict[str, Any]:
    ended = local.stop(options.folder)
    return {"folder": str(options.folder.resolve()), "ended": [f"{process.name} {process.pid}" for process in ended]}


def _status(options: argparse.Namespace) -> dict[str, Any]:
    return _described(local.status(options.folder))


def _described(running: local.Running) -> dict[str, Any]:
    if not running.processes:
        return {"running": False}
    return {
        "running": True,
        "use": local.exports(running.configuration),
        "processes": [f"{process.name} {process.pid}" for process in running.processes],
        "nodes": running.nodes or "the controller does not answer",
    }


def _check(options: argparse.Namespace) -> dict[str, Any]:
    found = preflight.check(
        partition=options.partition,
        account=options.account,
        nodes=options.nodes,
        cpus=options.cpus,
        gpus_per_node=options.gpus_per_node,
        memory=options.memory,
        minutes=options.minutes,
    )
    return {"partition": found.partition, "nodes": found.nodes, "up": found.up, "fitting": found.fitting}


def _why(options: argparse.Namespace) -> dict[str, Any] | None:
    log = options.log or states.newest(Path(".snakemake/log"))
    try:
        text = reading.raw(log, "log of Snakemake").decode(errors="replace")
    except InputError as error:
        raise InputError(f"{error}: give a log of Snakemake (.snakemake/log/*.snakemake.log)") from None
    endings = states.endings(text, states.log_text)
    if options.json:
        return {"log": str(log), "failed": [ending.as_row() for ending in endings]}
    print(states.report(endings), flush=True)
    return None
