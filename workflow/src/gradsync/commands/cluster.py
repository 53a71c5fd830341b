"""Measure a cluster, show it, or put one together of parts."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from gradsync.errors import InputError

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# On processors full-size images take minutes an iteration: (size, samples a rank); None: the model's own size.
ON_PROCESSORS: dict[str, tuple[int | None, int]] = {
    "lenet5": (None, 32),
    "resnet18": (64, 8),
    "resnet50": (64, 4),
    "googlenet": (64, 4),
    "vgg19": (32, 2),
    "resnet152": (64, 2),
    "densenet201": (64, 2),
    "inceptionv4": (96, 2),
    "bert_base": (64, 2),
    "transformer": (64, 2),
}
ELSEWHERE = {"cpu": 4, "cuda": 32}  # samples a rank, at the model's own size


def cluster(options: argparse.Namespace) -> dict[str, Any] | None:
    """A cluster as one file: measure it, show it, or put it together of parts measured by several jobs."""
    return {"measure": _measure, "show": _show, "assemble": _assemble}[options.action](options)


def _show(options: argparse.Namespace) -> dict[str, Any] | None:
    from gradsync import clusters
    from gradsync.clusters import text

    profile = clusters.load(options.file)
    if options.json:
        return profile.model_dump(mode="json")
    print(text.show(profile))
    return None


def _assemble(options: argparse.Namespace) -> dict[str, Any] | None:
    from gradsync.clusters import parts
    from gradsync.plan.workload import Workload

    output = _output(options)
    read = [parts.read(path) for path in options.part]
    nodes = next((part.nodes for part in read if isinstance(part, parts.NodesPart)), None)
    if nodes is None:
        raise InputError("cluster assemble: --part: none of the files says what the nodes are: give nodes.json too")
    read += [parts.layers(Workload.load(path), nodes, str(path)) for path in options.workload]
    return _told(options, parts.assemble(options.name, read, output), output)


def _told(options: argparse.Namespace, profile: Any, output: Path) -> dict[str, Any] | None:
    from gradsync.clusters import text

    if options.json:
        return {"output": str(output), "profile": profile.model_dump(mode="json")}
    print(text.show(profile))
    return {"output": str(output)}


def _output(options: argparse.Namespace) -> Path:
    """Where the profile goes; raises InputError where a file is there that is no measured cluster."""
    from gradsync import clusters

    if not re.fullmatch(NAME, options.name):
        raise InputError(
            f"cluster {options.action} {options.name!r}: a name has letters, digits, '.', '_' and '-' only"
        )
    output = options.output or Path("config/clusters") / f"{options.name}.yaml"
    if output.suffix != ".yaml":
        raise InputError(f"--output {output}: must end in .yaml")
    if output.exists():
        try:
            clusters.load(output)
        except InputError as error:
            raise InputError(f"--output {output}: holds something else, which would be lost ({error})") from None
    return output


def _measure(options: argparse.Namespace) -> dict[str, Any] | None:
    from gradsync.clusters import parts
    from gradsync.runtime.launch import is_rank

    request = _request(options)
    output = _output(options)
    folder = options.parts or output.parent / f".{output.stem}.parts"
    if is_rank():
        files = _measure_as_rank(request, folder)
        if options.launched or files is None:
            return None
    else:
        files = _measure_here(options, request, folder)
    if set(request.only) < {"nodes", "links", "layers"}:
        return {"parts": [str(file) for file in files]}
    return _told(options, parts.assemble(options.name, [parts.read(file) for file in files], output), output)


def _request(options: argparse.Namespace) -> Any:
    """What was asked for; raises InputError for what can't be measured, before anything starts."""
    from gradsync.measure.cluster import WHAT, Request
    from gradsync.runtime import models

    full = [name for name, model in models.MODELS.items() if not model.reduced]
    asked = full if options.models == ["all"] else options.models
    chosen = tuple(_model(text, options.device) for text in asked)
    names = [one.name for one in chosen]
    if len(set(names)) < len(names):
        raise InputError(f"--models {' '.join(asked)}: a model is named twice")
    for one in chosen:
        models.shape(one.name, one.size, one.batch)
    for key, least in (("iterations", 2), ("smallest", 4), ("largest", 4)):
        value = getattr(options, key)
        if value is not None and value < least:
            raise InputError(f"--{key} {value}: at least {least}")
    if options.ranks and min(options.ranks) < 1:
        raise InputError(f"--ranks {min(options.ranks)}: at least 1")
    return Request(
        models=chosen,
        device=options.device,
        only=tuple(what for what in WHAT if not options.only or what in options.only),
        inside=tuple(options.ranks) if options.ranks else None,
        iterations=options.iterations,
        smallest=options.smallest,
        largest=options.largest,
        force=options.force,
    )


def _model(text: str, device: str) -> Any:
    from gradsync.measure.cluster import ModelRequest

    name, *pairs = text.split(":")
    size, batch = ON_PROCESSORS.get(name, (None, ELSEWHERE["cpu"])) if device == "cpu" else (None, ELSEWHERE["cuda"])
    given = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in ("size", "batch") or not value.isdigit() or int(value) < 1:
            raise InputError(f"--models {text}: give NAME, or NAME:size=PIXELS:batch=SAMPLES")
        given[key] = int(value)
    return ModelRequest(name, given.get("size", size), given.get("batch", batch))


def _measure_as_rank(request: Any, folder: Path) -> list[Path] | None:
    """The files of all parts, on rank 0; None on the others."""
    from gradsync.measure import cluster
    from gradsync.runtime.group import process_group

    with process_group(device=request.device) as (rank, _):
        if rank == 0:
            _prepare(folder)
        files = cluster.measure(request, folder)
    return files if rank == 0 else None


def _prepare(folder: Path) -> None:
    """The folder of the parts, which a repository ignores."""
    from gradsync.files.results import write_whole

    write_whole(folder / ".gitignore", "*\n")


def _measure_here(options: argparse.Namespace, request: Any, folder: Path) -> list[Path]:
    """Start the ranks on this machine: as many as have a core each for the layers, then those of longer teams."""
    from gradsync.measure.cluster_links import powers
    from gradsync.runtime import devices
    from gradsync.runtime.launch import cores, elsewhere, room_for
    from gradsync.slurm.launch import LAUNCH

    if elsewhere():
        raise InputError(
            f"cluster measure: runs in each rank: put the command in {LAUNCH} before it, and unset {LAUNCH}"
        )
    if options.device == "cpu":
        ranks = sorted(options.ranks or [2])
        room_for(ranks[-1], "--ranks")
        alike = [n for n in ranks if n <= cores()] or ranks[:1]
    else:
        devices.refuse(options.device, max(options.ranks or [1]))
        ranks = alike = sorted(options.ranks or powers(_gpus()) or [1])
    _launch(options, request.only, alike, folder)
    longer = [n for n in ranks if n not in alike]
    if longer and "links" in request.only:
        print(f"cluster: ranks {', '.join(map(str, longer))} share {cores()} cores", file=sys.stderr)
        _launch(options, ("links",), longer, folder)
    names = ["nodes"] if "nodes" in request.only else []
    names += [f"inside-1x{n}" for n in ranks if n > 1] if "links" in request.only else []
    names += [f"layers-{one.name}-1x{alike[-1]}" for one in request.models] if "layers" in request.only else []
    return [folder / f"{name}.json" for name in names]


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _launch(options: argparse.Namespace, only: tuple[str, ...], ranks: list[int], folder: Path) -> None:
    from gradsync.runtime.launch import launch

    told = ["--device", options.device, "--iterations", str(options.iterations), "--parts", str(folder)]
    for key in ("smallest", "largest", "output"):
        if getattr(options, key) is not None:
            told += [f"--{key}", str(getattr(options, key))]
    told += ["--force"] if options.force else []
    told += ["--models", *options.models, "--only", *only, "--ranks", *map(str, ranks), "--launched"]
    launch(["cluster", "measure", options.name, *told], ranks[-1])
