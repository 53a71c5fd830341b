"""Copies of the project with a tiny configuration, and the jobs that Snakemake lists for them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from batches import batches, rules
from gradsync.configuration import schemes, settings
from gradsync.papers.declaration import Batch
from project_copy import ROOT, Project

TINY = """\
version: 1
name: tiny
training: [{model: lenet5, ranks: 2, batch: 8, iterations: 8, block: 4, peers: [ddp], conformance: 1}]
profiles: {resnet50: {batch: 2, size: 64, iterations: 2}, googlenet: {batch: 2, size: 64, iterations: 2}}
network: {ranks: [2], smallest: 64, largest: 4096}
papers: {mgwfbp: {nodes: [4], gap_nodes: [4, 8], forward_shares: [0.5], bucket_sweep: 2}}
"""
LAUNCHES = TINY.splitlines()[2]
RESULTS = "results/tiny"
QUICK_TARGETS = [
    f"{RESULTS}/tables/mgwfbp/table2.csv",
    f"{RESULTS}/tables/mgwfbp/timelines.md",
    f"{RESULTS}/figures/mgwfbp/fig1.svg",
]


def tiny_copy(folder: Path) -> Project:
    """A copy with the configuration that most tests run."""
    copy = Project(folder)
    copy.write("config/tiny.yaml", TINY)
    return copy


def jobs(ended: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Rule -> number of jobs in the table that Snakemake prints; all rules that make tables, or figures, are one."""
    assert ended.returncode == 0, ended.stdout
    tables = re.findall(r"^job +count\n[- ]+\n((?:\w+ +\d+\n)+)", ended.stdout, re.MULTILINE)
    counts: dict[str, int] = {}
    for rule, count in re.findall(r"(\w+) +(\d+)", tables[-1]) if tables else ():
        kind = re.sub(r"^(table|figure)_.*", r"\1", rule)
        counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def batches_of(configuration: str) -> dict[str, list[Batch]]:
    """Tables and figures of a configuration of the checkout, as they are made together."""
    return batches(settings.load(ROOT / "config" / f"{configuration}.yaml"))


def makes(*tables: str) -> list[str]:
    """Rules that make tables in the tiny configuration."""
    return [rule for rule in rules(settings.parse(yaml.safe_load(TINY), "tiny"), *tables) if rule.startswith("table_")]


def planned(launch: dict[str, Any], device: str = "cpu") -> int:
    """Schemes that a launch of a configuration has."""
    known = schemes.load(ROOT / "config" / "schemes.yaml")
    optimizer = launch.get("optimizer", "sgd")
    how = {"optimizer": optimizer, "in_phases": True}
    return len(schemes.pick(known, launch.get("schemes"), "a test", launch["ranks"], device, **how))
