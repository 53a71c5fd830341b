"""`gradsync slurm`."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from typing import Any

from gradsync.commands import parsing
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.slurm import local, machine, preflight, states
from gradsync.slurm.local_files import Shape


def options(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each action."""
    action = parsing.actions(parser, "start|stop|status|check|why")
    start = action("start", _start)
    start.add_argument("--nodes", type=int, default=4, help="nodes of it")
    start.add_argument("--cpus", type=int, default=2, help="that a node claims, whatever this machine has")
    start.add_argument(
        "--gpus-per-node", type=int, default=0, help="that a node claims: stand-ins, with nothing behind"
    )
    start.add_argument("--memory", type=int, metavar="MB", help="that a node claims (default: its share of all)")
    for subparser in (start, action("stop", _stop), action("status", _status)):
        subparser.add_argument("--folder", type=Path, default=Path("results/slurm"), help="where all of it lies")
    check = action("check", _check)
    check.add_argument("--partition", metavar="NAME", help="where the job would run (default: the cluster's)")
    check.add_argument("--account", metavar="NAME", help="what it would be billed to (default: yours)")
    check.add_argument("--nodes", type=int, default=1, help="nodes of the job")
    check.add_argument("--cpus", type=int, default=1, help="of a node")
    check.add_argument("--gpus-per-node", type=int, default=0, help="of a node")
    check.add_argument("--memory", type=int, default=0, metavar="MB", help="of a node")
    check.add_argument("--minutes", type=int, default=0, help="that the job may take")
    why = action("why", _why)
    why.add_argument("log", nargs="?", type=Path, metavar="LOG", help="of Snakemake (default: the newest here)")


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Start or stop a local Slurm, check a cluster before jobs are submitted, tell why jobs failed."""
    result: dict[str, Any] | None = options.act(options)
    return result


def _start(options: argparse.Namespace) -> dict[str, Any] | None:
    """Start a real Slurm of several nodes on this machine, to try the profile; prints what to export."""
    for name in ("nodes", "cpus", "memory"):
        number = getattr(options, name)
        if number is not None and number < 1:
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
    """End it and its jobs."""
    ended = local.stop(options.folder)
    return {"folder": str(options.folder.resolve()), "ended": [f"{process.name} {process.pid}" for process in ended]}


def _status(options: argparse.Namespace) -> dict[str, Any]:
    """Show what runs of it."""
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
    """Check whether this cluster would take the largest job; if not, say what to change."""
    offer = preflight.check(
        partition=options.partition,
        account=options.account,
        nodes=options.nodes,
        cpus=options.cpus,
        gpus_per_node=options.gpus_per_node,
        memory=options.memory,
        minutes=options.minutes,
    )
    return {"partition": offer.partition, "nodes": offer.nodes, "up": offer.up, "fitting": offer.fitting}


def _why(options: argparse.Namespace) -> dict[str, Any] | None:
    """Tell why jobs of a run failed, and what to change."""
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
