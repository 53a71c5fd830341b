"""Measure this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradsync.commands.hosts import described, enter, hosts
from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.lifetimes import leftovers

OUTPUT_BYTES = 1e6  # what a measurement writes, and more
OF_LAUNCH = ("workload.json", "allreduce.csv", "interference.json")  # that `measure launch` writes
RAW = ("workload.json", "allreduce.json", "interference.json")  # of rank 0


def measure(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure this machine: layer times of a model, all-reduce times, alone or several at once, how much the two slow.

    `launch` measures all that a launch is planned from in one start of its ranks: layers, all-reduces, slowdown.
    Or count the operations of a model, which runs nothing; or time what a replayed workload really computes.
    """
    from gradsync.runtime.launch import is_rank

    if options.what == "operations":
        return _counted(options)
    if is_rank():
        _measure_rank(options)
        return None
    _refuse_measurement(options)
    enter(options)
    match options.what:
        case "allreduce":
            return _measured_allreduce(options)
        case "contention":
            return _measured_contention(options)
        case "launch":
            return _measured_launch(options)
    return _measured_model(options)


def _counted(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.files.results import write_whole
    from gradsync.measure import operations

    if options.batch < 1:
        raise InputError(f"--batch {options.batch}: at least 1")
    counted = operations.workload(options.model, 1e12 * options.teraflops, options.batch, options.size)
    write_whole(options.output, counted.to_json())
    return {
        "counted": options.model,
        "operations_forward": sum(operations.forward(options.model, options.size).values()) * options.batch,
        "output": str(options.output),
    }


def _refuse_measurement(options: argparse.Namespace) -> None:
    """What can be refused is refused before anything starts. Sets the sizes that a workload asks for."""
    from gradsync.plan.workload import Workload
    from gradsync.runtime import devices, models
    from gradsync.runtime.launch import elsewhere, room_for
    from gradsync.runtime.replay import PREFIX

    for ranks in options.ranks:
        room_for(ranks, "--ranks")
        if not elsewhere():
            devices.refuse(options.device, ranks)
    if options.what != "layers" and min(options.ranks) < 2:
        raise InputError(f"measure {options.what}: --ranks must be at least 2")
    if options.what != "allreduce" and len(options.ranks) > 1:
        raise InputError(f"measure {options.what}: --ranks takes one number: run it once for each")
    for key in ("batch", "iterations", "smallest", "largest"):
        if getattr(options, key) < 1:
            raise InputError(f"--{key} {getattr(options, key)}: at least 1")
    if options.what in ("allreduce", "launch"):
        _refuse_collectives(options)
    if options.what == "contention":
        if options.lanes < 2:
            raise InputError(f"--lanes {options.lanes}: at least 2; gradsync measure allreduce measures one message")
    elif options.what not in ("allreduce", "replay"):
        models.shape(options.model, options.size, options.batch)
    if options.what == "replay":
        if not options.workload:
            raise InputError("measure replay: --workload is needed: what is replayed")
        options.model = f"{PREFIX}{options.workload}"
        models.build(options.model, 0)
    described(options, options.ranks)
    disk.refuse(options.output.parent, OUTPUT_BYTES, "what is measured")
    if options.workload:
        workload = Workload.load(options.workload)
        options.smallest, options.largest = min(layer.bytes for layer in workload.layers), workload.bytes
        if options.what == "contention":
            options.largest = max(options.largest // 2, options.smallest + 4)  # two at once are no larger
    elif options.by_layer:
        raise InputError("--by-layer: --workload is needed: its largest layer is the largest message")
    elif options.what == "interference":
        raise InputError("measure interference: --workload is needed: its sizes are those of the messages")
    elif options.what in ("allreduce", "contention") and options.smallest >= options.largest:
        raise InputError(f"--smallest {options.smallest}: must be less than --largest {options.largest}")


def _refuse_collectives(options: argparse.Namespace) -> None:
    from gradsync.measure import allreduce

    for scheme in map(allreduce.collective, options.collective):
        scheme.refuse_device(options.device)
        for ranks in options.ranks:
            scheme.refuse_ranks(ranks)


def _measured_model(options: argparse.Namespace) -> dict[str, Any]:
    _launch_measurement(options, options.ranks[0], options.output)
    return {"measured": options.what, "output": str(options.output)}


def _measured_allreduce(options: argparse.Namespace) -> dict[str, Any]:
    """One launch for each number of ranks; all of them in one file."""
    from gradsync.files.results import write_whole
    from gradsync.files.writing import make_folder
    from gradsync.measure import allreduce
    from gradsync.runtime.launch import elsewhere

    points: list[allreduce.Point] = []
    made_with: dict[str, Any] = {}
    notes: list[str] = []
    shared = None
    if elsewhere():  # rank 0 may write on another machine
        shared = make_folder(options.output.parent)
    with leftovers.temporary_folder(shared) as folder:
        for ranks in options.ranks:
            print(f"measure allreduce: {ranks} ranks, {options.smallest} to {options.largest} B", file=sys.stderr)
            found = folder / f"{ranks}.json"
            _launch_measurement(options, ranks, found)
            content = json.loads(found.read_text())
            points += _points(content, ranks)
            made_with[f"threads, {ranks} ranks"] = content["provenance"].pop("threads")
            made_with |= content["provenance"]
            if testbed := described(options, [ranks]):
                made_with["testbed"] = testbed.describe()
            notes += _crowded(options.device, ranks, made_with["cores"])
    write_whole(options.output, allreduce.to_csv(points, {**made_with, "notes": notes}))
    answer = {"fits": allreduce.fits(points), "notes": notes, "output": str(options.output)}
    if options.json:
        return {"points": [each._asdict() for each in points], **answer, "provenance": made_with}
    print(allreduce.columns(points))
    return answer


def _crowded(device: str, ranks: int, cores: int) -> list[str]:
    """What to say where ranks have less than a core each."""
    return [f"{ranks} ranks share {cores} cores"] if device == "cpu" and ranks > cores else []


def _points(content: dict[str, Any], ranks: int) -> list[Any]:
    """What rank 0 has written of all-reduce times, one point a message size and collective."""
    from gradsync.measure import allreduce

    seconds = content["seconds"].items()
    return [allreduce.point(ranks, int(size), each, name) for name, times in seconds for size, each in times.items()]


def _measured_launch(options: argparse.Namespace) -> dict[str, Any]:
    """Writes `workload.json`, `allreduce.csv` and `interference.json` into the output folder."""
    from gradsync.files.results import write_whole
    from gradsync.files.writing import make_folder
    from gradsync.measure import allreduce
    from gradsync.runtime.launch import elsewhere

    (ranks,) = options.ranks
    make_folder(options.output)
    with leftovers.temporary_folder(options.output if elsewhere() else None) as folder:
        _launch_measurement(options, ranks, folder)
        workload, times, slowed = ((folder / name).read_text() for name in RAW)
    content = json.loads(times)
    points = _points(content, ranks)
    made_with = content["provenance"]
    notes = _crowded(options.device, ranks, made_with["cores"])
    texts = (workload, allreduce.to_csv(points, {**made_with, "notes": notes}), slowed)
    for name, text in zip(OF_LAUNCH, texts, strict=True):
        write_whole(options.output / name, text)
    return {"measured": "launch", "fits": allreduce.fits(points), "notes": notes, "output": str(options.output)}


def _measured_contention(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.costs.contention_points import Contention
    from gradsync.files.results import write_whole
    from gradsync.measure import contention

    (ranks,) = options.ranks
    sizes = f"{options.smallest} to {options.largest} B"
    print(f"measure contention: {ranks} ranks, 1 to {options.lanes} messages at once, {sizes}", file=sys.stderr)
    _launch_measurement(options, ranks, options.output)
    found = Contention.load(options.output)
    if testbed := described(options, [ranks]):
        found = found.model_copy(update={"provenance": {**found.provenance, "testbed": testbed.describe()}})
        write_whole(options.output, found.to_json())
    fit = found.fit(str(options.output))
    answer = {**contention.answer(fit), "output": str(options.output)}
    if options.json:
        derived = {"gammas": [each._asdict() for each in fit.gammas], "residuals": [r._asdict() for r in fit.residuals]}
        return {**answer, **derived, "provenance": found.provenance}
    print(contention.columns(found, fit))
    return answer


def _launch_measurement(options: argparse.Namespace, ranks: int, output: Path) -> None:
    from gradsync.runtime.launch import launch

    keys = ("model", "size", "batch", "iterations", "smallest", "largest", "workload", "device")
    given = {key: getattr(options, key) for key in keys} | {"ranks": ranks, "output": output}
    told = [part for key, value in given.items() if value is not None for part in (f"--{key}", str(value))]
    if options.what in ("allreduce", "launch"):
        told += ["--collective", *options.collective, *(["--by-layer"] if options.by_layer else [])]
    if options.what == "contention":
        told += ["--lanes", str(options.lanes)]
    with hosts(described(options, [ranks]), ranks) as testbed:
        launch(["measure", options.what, *told], ranks, testbed)


def _measure_rank(options: argparse.Namespace) -> None:
    from gradsync.files.results import write_whole
    from gradsync.plan.workload import Workload
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    with process_group(device=options.device) as (rank, _):
        device = devices.pick(options.device)
        if options.what == "launch":
            for name, text in zip(RAW, _launch_texts(options, device, rank), strict=True):
                if rank == 0:
                    write_whole(options.output / name, text)
            return
        match options.what:
            case "allreduce":
                from gradsync.measure import allreduce

                own = options.largest
                if options.by_layer:
                    own = max(layer.bytes for layer in Workload.load(options.workload).layers)
                times = allreduce.measure(options.smallest, options.largest, device, options.collective, own)
                text = json.dumps(times)
            case "contention":
                from gradsync.measure import contention

                text = contention.measure(options.smallest, options.largest, options.lanes, device).to_json()
            case "layers":
                from gradsync.measure import layers

                text = layers.measure(
                    options.model, options.batch, options.iterations, size=options.size, device=device
                ).to_json()
            case "replay":
                from gradsync.measure import replayed

                text = replayed.measure(options.model, options.iterations).to_json()
            case _:
                from gradsync.measure import interference

                workload = Workload.load(options.workload)
                text = interference.measure(
                    workload, options.model, options.batch, size=options.size, device=device
                ).to_json()
        if rank == 0:
            write_whole(options.output, text)


def _launch_texts(options: argparse.Namespace, device: Any, rank: int) -> Iterator[str]:
    """One after the other, what `measure` with layers, allreduce and interference writes; collective."""
    from gradsync.measure import allreduce, interference, layers

    def say(text: str) -> None:
        if rank == 0:
            print(f"measure launch: {text}", file=sys.stderr, flush=True)

    shape = {"size": options.size, "device": device}
    say(f"layers of {options.model}, {options.iterations} iterations")
    workload = layers.measure(options.model, options.batch, options.iterations, **shape)
    yield workload.to_json()
    smallest, largest = min(layer.bytes for layer in workload.layers), workload.bytes
    say(f"all-reduces of {smallest} to {largest} B")
    yield json.dumps(allreduce.measure(smallest, largest, device, options.collective, largest))
    say("how much computation and messages slow one another")
    yield interference.measure(workload, options.model, options.batch, **shape).to_json()
