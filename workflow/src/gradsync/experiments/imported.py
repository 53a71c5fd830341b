"""Traces of other programs made into a workload: what was recorded of a training is planned for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.configuration.options import option
from gradsync.configuration.training import Compute
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.interchange.recording import Recording
    from gradsync.interchange.sizes import Known, Shape
    from gradsync.plan.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `gradsync import`."""

    traces: tuple[Path, ...] = option(
        meaning="what PyTorch's profiler exported (.json or .json.gz), one per rank, or a Chakra trace (.et)",
        positional=True,
        metavar="TRACE",
    )
    output: Path = option(meaning="write the workload, JSON", metavar="FILE")
    points: Path | None = option(None, "write the points of the all-reduces in the traces, CSV", metavar="FILE")
    name: str | None = option(None, "of the workload", metavar="NAME", unset="the first file's")
    model: str | None = option(
        None, "PATH.py:FUNCTION or package.module:FUNCTION, or a model of `gradsync train`: names of its layers"
    )
    execution_trace: Path | None = option(
        None, "what ExecutionTraceObserver recorded of the same model: sizes that the traces lack", metavar="FILE"
    )
    step_annotation: str | None = option(
        None, "the annotation that spans a step", metavar="NAME", unset="the profiler's steps, else each backward"
    )
    warm_up: int = option(1, "steps at the start that don't count", metavar="N")


def load(options: Options) -> dict[str, Any]:
    """Write the workload, and the points if they are wanted; what was read, with intervals and notes.

    Raises InputError for a file that is no such trace, or traces that don't belong together.
    """
    from gradsync.interchange import chakra_file

    if options.warm_up < 0:
        raise InputError(f"--warm-up {options.warm_up}: not negative")
    if twice := next((path for path in options.traces if options.traces.count(path) > 1), None):
        raise InputError(f"trace {twice}: is given twice: give one trace per rank")
    written = [os.path.realpath(path) for path in (options.output, options.points) if path]
    read = [os.path.realpath(path) for path in (*options.traces, options.execution_trace) if path]
    if lost := next((path for number, path in enumerate(written) if path in (*read, *written[:number])), None):
        raise InputError(f"{lost}: would be overwritten: name another file for --output or --points")
    chakra = [path for path in options.traces if path.name.removesuffix(".gz").endswith(chakra_file.ENDING)]
    if not chakra:
        return _recorded(options, _kineto(options.traces))
    if len(chakra) < len(options.traces):
        raise InputError(f"trace {chakra[0]} is a Chakra trace, and others are not: give traces of one kind")
    from gradsync.interchange import chakra_plans, chakra_recording

    traces = [chakra_file.read(path) for path in options.traces]
    if any(chakra_plans.is_plan(trace) for trace in traces):
        return _planned(options, chakra_plans.workload(traces))
    return _recorded(options, [chakra_recording.of_trace(trace) for trace in traces])


def _kineto(paths: Sequence[Path]) -> list[Recording]:
    from gradsync.interchange import kineto

    return [kineto.read(path) for path in paths]


def _recorded(options: Options, recordings: Sequence[Recording]) -> dict[str, Any]:
    """From recordings of a training."""
    from gradsync.files.results import write_whole
    from gradsync.interchange import points, ranks, summary
    from gradsync.interchange.passes import are_told, steps
    from gradsync.interchange.sizes import sizes

    arranged = ranks.arranged([(each, steps(each, options.step_annotation)) for each in recordings], options.warm_up)
    first = arranged[0]
    known = sizes(
        first.steps[-1].gradients,
        first.recording.where,
        recorded=_execution_trace(options.execution_trace),
        model=_model(options.model),
    )
    told = summary.answer(arranged, ranks.clocks(arranged))
    provenance = {
        "imported": [each.recording.where for each in arranged],
        "warm_up": options.warm_up,
        "device": first.recording.source["device"],
        **told,
    }
    workload = summary.workload(_name(options), arranged, known, provenance)
    measured = points.points(arranged) if options.points else points.RecordedPoints([], [])
    if options.points and not measured.points:
        raise InputError(
            f"--points {options.points}: trace {first.recording.where} has no all-reduce of known size: record "
            "distributed training with record_shapes=True"
        )
    write_whole(options.output, workload.to_json())
    answer = {**_described(workload), **told, "output": str(options.output)}
    if options.points:
        write_whole(options.points, points.to_csv(measured, provenance))
        answer["points"] = [point._asdict() for point in measured.points]
    told_apart = are_told(first.recording, options.step_annotation)
    notes = [*_notes(workload, len(arranged), first.recording.ranks, told_apart), *measured.notes]
    busy = summary.busy_share(arranged)
    if busy is not None and busy < BUSY:
        notes.append(
            f"the GPU ran kernels or messages in {busy:.0%} of the steps: the host may have launched them late, as it "
            "does if the profiler slows it: compare with gradsync measure layers --device cuda"
        )
    return answer | {"notes": notes}


def _planned(options: Options, workload: Workload) -> dict[str, Any]:
    """From traces that gradsync itself has exported, whose ranks compute the same."""
    from gradsync.files.results import write_whole

    for option_, given in (
        ("--points", options.points),
        ("--model", options.model),
        ("--execution-trace", options.execution_trace),
        ("--step-annotation", options.step_annotation),
    ):
        if given is not None:
            raise InputError(f"{option_}: gradsync exported {options.traces[0]} from a plan, which has none of that")
    if options.name is not None:
        workload = workload.model_copy(update={"name": options.name})
    write_whole(options.output, workload.to_json())
    return {**_described(workload), "ranks": len(options.traces), "output": str(options.output), "notes": []}


def _name(options: Options) -> str:
    """The name that is given, else that of the first file without its endings."""
    return options.name or options.traces[0].name.partition(".")[0] or "imported"


def _execution_trace(path: Path | None) -> dict[int, tuple[Shape, str]] | list[tuple[Shape, str]]:
    from gradsync.interchange import execution_trace

    return execution_trace.gradients(path) if path else []


def _model(name: str | None) -> list[Known] | None:
    """The parameters of a model in the order in which autograd makes their gradients: one pass of it is run."""
    if name is None:
        return None
    from gradsync.interchange.sizes import Known
    from gradsync.measure.passes import Pass
    from gradsync.runtime import models

    models.refuse(name, None, Compute.batch)
    step = Pass(name, None, BATCH)
    step.compute()
    named = [(key, step.parameters[key]) for key, _ in step.gradients]
    return [Known(key, tuple(each.shape), str(each.dtype).removeprefix("torch.")) for key, each in named]


def _described(workload: Workload) -> dict[str, Any]:
    return {"workload": workload.name, "tensors": len(workload.layers), "bytes": workload.bytes}


def _notes(workload: Workload, traces: int, world: int | None, told_apart: bool) -> list[str]:
    notes = []
    if not workload.update_seconds:
        notes.append("no Optimizer.step was recorded in the steps: the update counts as no time")
    if not told_apart:
        notes.append("nothing but backward tells steps apart: if a step has several, each was taken for a step")
    if workload.layers[0].forward_index is None:
        notes.append("gradients are not joined with operators of forward: its layers share the time as backward does")
    if world and traces < world:
        notes.append(f"{traces} of {world} ranks: how far ranks are apart is not known")
    return notes


BUSY = 0.8  # of the steps that a GPU spends in kernels: less is told
BATCH = 2  # samples of the pass that tells the order of gradients
