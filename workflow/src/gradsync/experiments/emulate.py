"""One launch of a configuration on an emulated testbed, from its description to its results.

Each step is a command in a process of its own, which a kill of this one ends: a command that needs networks of its own
runs again in a user namespace, and ends with that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.configuration.options import words
from gradsync.errors import InputError, RunError
from gradsync.experiments import predict, train
from gradsync.experiments.profile import allreduce, contention, replay
from gradsync.lifetimes import lifeline, run_lock
from gradsync.names import near

if TYPE_CHECKING:
    from gradsync.configuration.launches import Emulation
    from gradsync.configuration.settings import Settings

UPDATES = 5  # that are timed


def emulate(job: str, settings: Settings, results: Path, config: str) -> dict[str, Any]:
    """Emulate the launch of that name; `config` is the file of the settings, and `results` the folder of theirs.

    If this machine can't, or what is replayed is missing, the status that is written says why.
    """
    from gradsync.files.results import write_whole
    from gradsync.files.writing import remove_unfinished

    launches = {launch.job: launch for launch in settings.emulated}
    if job not in launches:
        known = ", ".join(launches) or "none"
        raise InputError(
            f"configuration {config} has no emulated launch {job!r}; {near(job, launches)}there are: {known}"
        )
    launch = launches[job]
    runs = results / "runs" / "emulated" / launch.job
    folder = results / "emulated" / launch.job
    with run_lock.held(folder, f"emulate {launch.job}"):
        for each in (folder, results / "plans" / "emulated" / launch.job):
            remove_unfinished(each)
        reason = _reason(launch, settings, results)
        if reason:
            print(f"gradsync: {launch.job} is not emulated: {reason}", file=sys.stderr)
            write_whole(runs / "schemes.json", "[]\n")
        else:
            _launch(launch, settings, results, config)
    # last, since it says that all is there; when, since snakemake takes a small file of the same content for the same
    status = {"possible": not reason, "reason": reason, "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    write_whole(runs / "status.json", json.dumps(status) + "\n")
    return {"job": launch.job, "emulated": not reason, "reason": reason, "output": str(runs)}


def _reason(launch: Emulation, settings: Settings, results: Path) -> str:
    """Why it can't be done here; empty if it can. Writes what is replayed, and on what."""
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


def _launch(launch: Emulation, settings: Settings, results: Path, config: str) -> None:
    """Measure, plan from what was measured, train."""
    from gradsync.collectives import NATIVE
    from gradsync.configuration import schemes, sent_kinds
    from gradsync.configuration.launches import EMULATED_OPTIMIZER
    from gradsync.configuration.scheme import LAYER_BY_LAYER

    folder, planned = results / "emulated" / launch.job, results / "plans" / "emulated" / launch.job
    workload, points, replayed = folder / "workload.json", folder / "allreduce.csv", folder / "replay.json"
    testbed = str(folder / "testbed.json")
    known = schemes.load(settings.schemes)
    chosen = schemes.pick(known, launch.schemes, config, launch.ranks, optimizer=EMULATED_OPTIMIZER)
    updates = replay.Options(
        workload=str(replayed), iterations=UPDATES, ranks=launch.ranks, testbed=testbed, output=workload
    )
    _run("measure", "replay", options=updates)
    together = launch.ranks_a_node
    measured = {scheme.measured_as(launch.ranks, together): scheme for scheme in chosen}
    sent = sent_kinds.of_schemes(chosen, launch.ranks, together)
    sums = allreduce.Options(
        workload=str(workload),
        by_layer=all(scheme.schedule == LAYER_BY_LAYER for scheme in chosen if scheme.algorithm != NATIVE),
        collective=tuple(
            f"{scheme.collective}@{scheme.network(launch.ranks, together).name}" if key else NATIVE
            for key, scheme in measured.items()
        ),
        kind=sent.kinds or allreduce.Options.kind,
        axes=sent.places,
        ranks=(launch.ranks,),
        testbed=testbed,
        output=points,
    )
    _run("measure", "allreduce", options=sums)
    lanes = max((scheme.lanes for scheme in chosen if scheme.collective == NATIVE), default=1)
    contended = folder / "contention.json"
    if lanes > 1:
        messages = contention.Options(
            workload=str(workload), lanes=lanes, ranks=launch.ranks, testbed=testbed, output=contended
        )
        _run("measure", "contention", options=messages)
    for scheme in chosen:
        planning = predict.Options(
            workload=str(workload),
            allreduce=str(points),
            contention=str(contended) if lanes > 1 and scheme.collective == NATIVE else None,
            schemes=settings.schemes,
            schedule=scheme.name,
            ranks=launch.ranks,
            ranks_a_node=together,
            output=planned / f"{scheme.name}.json",
            prediction=planned / f"{scheme.name}.prediction.json",
        )
        _run("plan", options=planning)
    training = train.Options(
        model=f"replay:{replayed}",
        data="synthetic",
        batch=1,
        momentum=0.0,
        epochs=1,
        iterations=launch.iterations,
        block=launch.block,
        conformance=launch.conformance,
        references=False,
        paper=launch.paper,
        ranks=launch.ranks,
        plans=tuple(planned / f"{scheme.name}.json" for scheme in chosen),
        peers=tuple(launch.peers),
        peers_file=settings.peers,
        testbed=testbed,
        output=results / "runs" / "emulated" / launch.job,
    )
    _run("train", options=training)


def _run(*command: str, options: Any) -> None:
    """Run another command, which says itself what is wrong and ends with this one; raises RunError if it fails."""
    line = [*command, *words(options)]
    print(f"gradsync {' '.join(line)}", file=sys.stderr, flush=True)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        # stdout is for this command's own result
        environment = lifeline.led(os.environ)
        with subprocess.Popen([sys.executable, "-m", "gradsync", *line], stdout=sys.stderr, env=environment) as child:
            try:
                status = child.wait()
            finally:
                child.terminate()
    finally:
        signal.signal(signal.SIGTERM, before)
    if status:
        raise RunError(f"gradsync {' '.join(command)} ended with status {status}: see above")
