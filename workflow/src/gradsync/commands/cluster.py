"""`gradsync cluster`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import cluster


def options(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each action."""
    action = parsing.actions(parser, "measure|show|assemble")
    parsing.add(action("measure", _measure), cluster.Profiled)
    show = action("show", _show)
    show.add_argument("file", metavar="FILE", help="the cluster")
    parsing.add(action("assemble", _assemble), cluster.Assembled)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure a cluster into one file, show it, or put it together of parts measured by several jobs."""
    result: dict[str, Any] | None = options.act(options)
    return result


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure everything; under srun, or any launcher of ranks, all ranks run this."""
    measured = cluster.measure(parsing.read(cluster.Profiled, options))
    if measured is None:
        return None
    if measured.cluster is None:
        return {"parts": [str(file) for file in measured.parts]}
    return _described(options, measured.cluster, measured.file)


def _show(options: argparse.Namespace) -> dict[str, Any] | None:
    """Show a measured cluster as tables."""
    from gradsync import clusters
    from gradsync.clusters import text

    profile = clusters.load(options.file)
    if options.json:
        return profile.model_dump(mode="json")
    print(text.show(profile))
    return None


def _assemble(options: argparse.Namespace) -> dict[str, Any] | None:
    """Put one cluster together of parts that several jobs have measured."""
    assembled = cluster.assemble(parsing.read(cluster.Assembled, options))
    return _described(options, assembled.cluster, assembled.file)


def _described(options: argparse.Namespace, profile: Any, file: Path) -> dict[str, Any] | None:
    from gradsync.clusters import text

    if options.json:
        return {"output": str(file), "profile": profile.model_dump(mode="json")}
    print(text.show(profile))
    return {"output": str(file)}
