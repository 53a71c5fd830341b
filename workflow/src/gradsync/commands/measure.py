"""`gradsync measure`, with a subcommand for each thing that is measured."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments.profile import (
    allreduce,
    contention,
    interference,
    launch,
    layers,
    loading,
    operations,
    parts,
    ratios,
    replay,
    topk,
)


def options(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each thing."""
    action = parsing.actions(parser, "WHAT")
    parsing.add(action("layers", _layers), layers.Options)
    parsing.add(action("allreduce", _allreduce), allreduce.Options)
    parsing.add(action("contention", _contention), contention.Options)
    parsing.add(action("interference", _interference), interference.Options)
    parsing.add(action("launch", _launch), launch.Options)
    parsing.add(action("loading", _loading), loading.Options)
    parsing.add(action("operations", _operations), operations.Options)
    parsing.add(action("parts", _parts), parts.Options)
    parsing.add(action("ratios", _ratios), ratios.Options)
    parsing.add(action("replay", _replay), replay.Options)
    parsing.add(action("topk", _topk), topk.Options)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure this machine: layer times of a model, all-reduce times, contention, interference.

    `launch` measures all that a launch is planned from in one start of its ranks. `operations` counts those of a model,
    which runs nothing; `replay` times what a replayed workload really computes, `topk` how fast compressors select,
    `loading` what a training waits for photographs, `ratios` what LARS and LAMB compute of norms.
    """
    result: dict[str, Any] | None = options.act(options)
    return result


def _layers(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure the layer times of a model."""
    return _written("layers", layers.measure(parsing.read(layers.Options, options)))


def _allreduce(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure all-reduce times of many message sizes."""
    from gradsync.measure import allreduce as table

    measured = allreduce.measure(parsing.read(allreduce.Options, options))
    if measured is None:
        return None
    answer = {"fits": table.fits(measured.points), "notes": measured.notes, "output": str(options.output)}
    if options.json:
        points = [point._asdict() for point in measured.points]
        return {"points": points, **answer, "provenance": measured.provenance}
    print(table.columns(measured.points))
    return answer


def _contention(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure all-reduce times of several messages at once."""
    from gradsync.measure import contention as table

    measured = contention.measure(parsing.read(contention.Options, options))
    if measured is None:
        return None
    fit = measured.fit
    answer = {**table.answer(fit), "output": str(options.output)}
    if options.json:
        gammas = [gamma._asdict() for gamma in fit.gammas]
        residuals = [residual._asdict() for residual in fit.residuals]
        provenance = measured.contention.provenance
        return {**answer, "gammas": gammas, "residuals": residuals, "provenance": provenance}
    print(table.columns(measured.contention, fit))
    return answer


def _interference(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure how much computation and messages slow one another down."""
    return _written("interference", interference.measure(parsing.read(interference.Options, options)))


def _launch(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure layers, all-reduces and interference in one start of the ranks."""
    return launch.measure(parsing.read(launch.Options, options))


def _loading(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what a training waits for photographs, without the data cache and from each level of it."""
    runs = loading.measure(parsing.read(loading.Options, options))
    summaries = {name: run.summary for name, run in runs.items()}
    return {"loaders": summaries, "notes": next(iter(runs.values())).notes, "output": str(options.output)}


def _operations(options: argparse.Namespace) -> dict[str, Any]:
    """Count the operations of a model, and write the workload that follows at a rate; nothing is run."""
    return operations.count(parsing.read(operations.Options, options))


def _parts(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure this machine in parts, each bound to cores of its own: what `gradsync parts` chooses by."""
    return _written("parts", parts.measure(parsing.read(parts.Options, options)))


def _ratios(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure what the ratios of LARS and LAMB take on every rank, and dealt to ranks and gathered (PTO)."""
    times = ratios.measure(parsing.read(ratios.Options, options))
    if times is None:
        return None
    from gradsync.measure import ratios as table

    answer = {"notes": list(times.notes), "output": str(options.output)}
    if options.json:
        return {"points": table.rows(times), **answer, "provenance": times.provenance}
    print(table.columns(times))
    return answer


def _replay(options: argparse.Namespace) -> dict[str, Any] | None:
    """Measure what a replayed workload really computes: its update."""
    return _written("replay", replay.measure(parsing.read(replay.Options, options)))


def _topk(options: argparse.Namespace) -> dict[str, Any]:
    """Measure how fast each compressor selects, and which part of the exact top k it finds."""
    times = topk.measure(parsing.read(topk.Options, options))
    from gradsync.measure import topk as table

    written = {"output": str(options.output)} if options.output else {}
    if options.json:
        return {"points": table.rows(times), "notes": times.notes, **written, "provenance": times.provenance}
    print(table.columns(times))
    return {"notes": list(times.notes), **written}


def _written(what: str, output: Any) -> dict[str, Any] | None:
    return None if output is None else {"measured": what, "output": str(output)}
