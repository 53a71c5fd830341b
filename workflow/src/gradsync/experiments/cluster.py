"""Measure a cluster, or put one together of parts that several jobs have measured: one file that describes it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from gradsync.configuration.options import option, words
from gradsync.configuration.training import Device, OnDevice
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.clusters import Profile
    from gradsync.measure.cluster import ModelRequest, Request

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
Part = Literal["nodes", "links", "layers"]
# On processors full-size images take minutes per iteration: (size, samples per rank); None: the model's own size.
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
SAMPLES: dict[Device, int] = {"cpu": 4, "cuda": 32}  # per rank, of other models and devices, at the model's own size


@dataclass(frozen=True, kw_only=True)
class Profiled(OnDevice):
    """Options of `gradsync cluster measure`."""

    name: str = option(meaning="of the cluster", positional=True, metavar="NAME")
    ranks: tuple[int, ...] = option(
        (),
        "numbers of ranks on one node",
        metavar="N",
        unset="2 on processors, 2, 4, .. all on GPUs and under a launcher",
    )
    models: tuple[str, ...] = option(
        ("all",),
        "whose layers are timed, and whose messages are measured; all, or none after --models",
        metavar="NAME[:size=PX][:batch=N]",
        empty=True,
    )
    iterations: int = option(10, "that are timed of each model", metavar="N")
    smallest: int | None = option(None, "smallest message", metavar="BYTES", unset="smallest gradient")
    largest: int | None = option(None, "largest message", metavar="BYTES", unset="all of the largest model")
    only: tuple[Part, ...] = option((), "only parts, to be assembled", unset="all")
    parts: Path | None = option(None, "where parts are kept", metavar="FOLDER", unset="beside the output, hidden")
    force: bool = option(False, "measure again what is kept")
    launched: bool = option(False, "our own launcher assembles", hidden=True)
    output: Path | None = option(None, "write the cluster", metavar="FILE.yaml", unset="config/clusters/NAME.yaml")


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """Options of `gradsync cluster assemble`."""

    name: str = option(meaning="of the cluster", positional=True, metavar="NAME")
    part: tuple[Path, ...] = option(meaning="what measure --only leaves behind", metavar="FILE.json")
    workload: tuple[Path, ...] = option((), "what gradsync measure layers writes", metavar="W.json")
    output: Path | None = option(None, "write the cluster", metavar="FILE.yaml", unset="config/clusters/NAME.yaml")


class Measured(NamedTuple):
    """What a measurement leaves behind: the cluster and its file, or files of parts that are to be assembled."""

    cluster: Profile | None
    file: Path
    parts: list[Path]


def measure(options: Profiled) -> Measured | None:
    """Measure the cluster, or some parts of it; None in a rank that does not write it.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.clusters import parts
    from gradsync.runtime.launch import is_rank

    request = _request(options)
    output = _output("measure", options)
    folder = options.parts or output.parent / f".{output.stem}.parts"
    if is_rank():
        files = _measure_as_rank(request, folder)
        if options.launched or files is None:
            return None
    else:
        files = _measure_on_this_machine(options, request, folder)
    if set(request.only) < {"nodes", "links", "layers"}:
        return Measured(None, output, files)
    return Measured(parts.assemble(options.name, [parts.read(file) for file in files], output), output, files)


def assemble(options: Assembled) -> Measured:
    """Put a cluster together of files of parts; raises InputError if one is missing, or there twice."""
    from gradsync.clusters import parts
    from gradsync.plan.workload import Workload

    output = _output("assemble", options)
    loaded = [parts.read(path) for path in options.part]
    nodes = next((part.nodes for part in loaded if isinstance(part, parts.NodesPart)), None)
    if nodes is None:
        raise InputError("cluster assemble: --part: none of the files says what the nodes are: give nodes.json too")
    loaded += [parts.layers(Workload.load(path), nodes, str(path)) for path in options.workload]
    return Measured(parts.assemble(options.name, loaded, output), output, list(options.part))


def _output(action: str, options: Profiled | Assembled) -> Path:
    """Where the cluster is written; raises InputError if a file is there that is no measured cluster."""
    from gradsync import clusters

    if not re.fullmatch(NAME, options.name):
        raise InputError(f"cluster {action} {options.name!r}: a name has letters, digits, '.', '_' and '-' only")
    output = options.output or Path("config/clusters") / f"{options.name}.yaml"
    if output.suffix != ".yaml":
        raise InputError(f"--output {output}: must end in .yaml")
    if output.exists():
        try:
            clusters.load(output)
        except InputError as error:
            raise InputError(f"--output {output}: holds something else, which would be lost ({error})") from None
    return output


def _request(options: Profiled) -> Request:
    """What is measured; raises InputError for what can't be, before anything starts."""
    from gradsync.measure.cluster import WHAT, Request
    from gradsync.runtime import models

    full_size = [name for name, model in models.MODELS.items() if not model.reduced]
    texts = full_size if options.models == ("all",) else list(options.models)
    requests = tuple(_model(text, options.device) for text in texts)
    if len({request.name for request in requests}) < len(requests):
        raise InputError(f"--models {' '.join(texts)}: a model is named twice")
    for request in requests:
        models.refuse_own(request.name, "measured on a cluster")
        models.shape(request.name, request.size, request.batch)
    for key, least in (("iterations", 2), ("smallest", 4), ("largest", 4)):
        value = getattr(options, key)
        if value is not None and value < least:
            raise InputError(f"--{key} {value}: at least {least}")
    if options.ranks and min(options.ranks) < 1:
        raise InputError(f"--ranks {min(options.ranks)}: at least 1")
    return Request(
        models=requests,
        device=options.device,
        only=tuple(what for what in WHAT if not options.only or what in options.only),
        inside=options.ranks or None,
        iterations=options.iterations,
        smallest=options.smallest,
        largest=options.largest,
        force=options.force,
    )


def _model(text: str, device: Device) -> ModelRequest:
    from gradsync.measure.cluster import ModelRequest

    name, *pairs = text.split(":")
    size, batch = ON_PROCESSORS.get(name, (None, SAMPLES["cpu"])) if device == "cpu" else (None, SAMPLES["cuda"])
    changes = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in ("size", "batch") or not value.isdigit() or int(value) < 1:
            raise InputError(f"--models {text}: give NAME, or NAME:size=PIXELS:batch=SAMPLES")
        changes[key] = int(value)
    return ModelRequest(name, changes.get("size", size), changes.get("batch", batch))


def _measure_as_rank(request: Request, folder: Path) -> list[Path] | None:
    """The files of all parts, on rank 0; None on the others."""
    from gradsync.measure import cluster
    from gradsync.runtime.group import process_group

    with process_group(device=request.device) as (rank, _):
        if rank == 0:
            _prepare(folder)
        files = cluster.measure(request, folder)
    return files if rank == 0 else None


def _prepare(folder: Path) -> None:
    """Make the folder of the parts, which a repository ignores."""
    from gradsync.files.results import write_whole

    write_whole(folder / ".gitignore", "*\n")


def _measure_on_this_machine(options: Profiled, request: Request, folder: Path) -> list[Path]:
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
    names += [f"layers-{model.name}-1x{alike[-1]}" for model in request.models] if "layers" in request.only else []
    return [folder / f"{name}.json" for name in names]


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _launch(options: Profiled, only: tuple[str, ...], ranks: list[int], folder: Path) -> None:
    from gradsync.runtime.launch import launch

    of_ranks = replace(options, only=cast(tuple[Part, ...], only), ranks=tuple(ranks), parts=folder, launched=True)
    launch(["cluster", "measure", *words(of_ranks)], ranks[-1], gpus=options.device != "cpu")
