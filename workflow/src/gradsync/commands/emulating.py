"""`gradsync emulate`: one launch of a configuration on an emulated testbed, from its description to its results."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.commands.configuration import configured
from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline, run_lock
from gradsync.names import near

if TYPE_CHECKING:
    from gradsync.configuration.settings import Emulation, Settings

UPDATES = 5  # that are timed


def emulate(options: argparse.Namespace) -> dict[str, Any]:
    """Emulate a launch of a configuration: hosts on limited links, computation replayed, every scheme in turn.

    Where this machine can't, or what is replayed is not here, the result says why.
    """
    from gradsync.files.results import write_whole

    loaded, results = configured(options)
    jobs = {launch.job: launch for launch in loaded.emulated}
    if options.job not in jobs:
        known = ", ".join(jobs) or "none"
        raise InputError(
            f"configuration {options.config} has no emulated launch {options.job!r}; {near(options.job, jobs)}"
            f"there are: {known}"
        )
    launch = jobs[options.job]
    runs = results / "runs" / "emulated" / launch.job
    with run_lock.held(results / "emulated" / launch.job, f"emulate {launch.job}"):
        reason = _reason(launch, loaded, results)
        if reason:
            print(f"gradsync: {launch.job} is not emulated: {reason}", file=sys.stderr)
            write_whole(runs / "schemes.json", "[]\n")
        else:
            _launched(options, launch, results, runs)
    # last, since it says that all is there; when, since snakemake takes a small file of the same content for the same
    status = {"possible": not reason, "reason": reason, "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    write_whole(runs / "status.json", json.dumps(status) + "\n")
    return {"job": launch.job, "emulated": not reason, "reason": reason, "output": str(runs)}


def _reason(launch: Emulation, settings: Settings, results: Path) -> str:
    """Why it can't be done here; empty where it can. Writes what is replayed, and on what."""
    from gradsync import papers
    from gradsync.configuration import schemes
    from gradsync.files.results import write_whole
    from gradsync.testbed import privileges
    from gradsync.testbed.wiring import MOST_LANES

    stand_in = papers.stand_in(launch, settings, results)
    if reason := privileges.impossible():
        return f"no testbed on this machine: {reason}"
    folder = results / "emulated" / launch.job
    known = schemes.load(settings.schemes)
    lanes = min(MOST_LANES, max(known[name].lanes for name in launch.schemes))
    write_whole(folder / "testbed.json", stand_in.testbed(launch, lanes).to_json())
    write_whole(folder / "replay.json", stand_in.replayed(launch).to_json())
    return ""


def _launched(options: argparse.Namespace, launch: Emulation, results: Path, runs: Path) -> None:
    """Measure, plan from what was measured, run."""
    from gradsync.collectives import NATIVE
    from gradsync.configuration import schemes
    from gradsync.configuration.settings import load

    settings = load(options.config)
    folder, plans = results / "emulated" / launch.job, results / "plans" / "emulated" / launch.job
    workload, points, replay = folder / "workload.json", folder / "allreduce.csv", folder / "replay.json"
    on = ["--ranks", launch.ranks, "--testbed", folder / "testbed.json"]
    chosen = schemes.pick(schemes.load(settings.schemes), launch.schemes, options.config, launch.ranks)
    _gradsync("measure", "replay", "--workload", replay, "--iterations", UPDATES, *on, "--output", workload)
    own = {each.measured_as(launch.ranks): each for each in chosen}
    sums = [f"{each.collective}@{each.network(launch.ranks).name}" if key else NATIVE for key, each in own.items()]
    by_layer = all(each.schedule == schemes.LAYER_BY_LAYER for each in chosen if each.collective != NATIVE)
    messages = ["--workload", workload, *(["--by-layer"] if by_layer else [])]
    _gradsync("measure", "allreduce", *messages, "--collective", *sums, *on, "--output", points)
    at_once = folder / "contention.json"
    lanes = max((each.lanes for each in chosen if each.collective == NATIVE), default=1)
    if lanes > 1:
        told = ["--lanes", lanes, "--workload", workload]
        _gradsync("measure", "contention", *told, *on, "--output", at_once)
    made = []
    for scheme in chosen:
        name = scheme.name
        made += ["--plan", plans / f"{name}.json"]
        several = ["--contention", at_once] if lanes > 1 and scheme.collective == NATIVE else []
        told = ["--schemes", settings.schemes, "--schedule", name, "--ranks", launch.ranks]
        files = ["--output", plans / f"{name}.json", "--prediction", plans / f"{name}.prediction.json"]
        _gradsync("plan", "--workload", workload, "--allreduce", points, *several, *told, *files)
    for peer in launch.peers:
        made += ["--peer", peer]
    length = ["--epochs", 1, "--iterations", launch.iterations, "--block", launch.block]
    shown = ["--paper", launch.paper, "--peers", settings.peers, "--no-references", "--momentum", 0]
    model = ["--model", f"replay:{replay}", "--data", "synthetic", "--batch", 1, "--conformance", launch.conformance]
    _gradsync("train", *model, *made, *length, *shown, *on, "--output", runs)


def _gradsync(*told: Any) -> None:
    """Another command, which says itself what is wrong and ends with this one; raises RunError where it fails."""
    command = [str(part) for part in told]
    print(f"gradsync {' '.join(command)}", file=sys.stderr, flush=True)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        # stdout is for this command's own result
        ours = lifeline.led(os.environ)
        with subprocess.Popen([sys.executable, "-m", "gradsync", *command], stdout=sys.stderr, env=ours) as child:
            try:
                status = child.wait()
            finally:
                child.terminate()
    finally:
        signal.signal(signal.SIGTERM, before)
    if status:
        raise RunError(f"gradsync {' '.join(command[:2])} ended with status {status}: see above")
