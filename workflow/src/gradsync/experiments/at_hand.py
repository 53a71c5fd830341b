"""What is not known beforehand: a model is measured here, a network is described, or that of the ranks at hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gradsync.configuration.networks import Ranks
from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option, taken
from gradsync.configuration.training import Device
from gradsync.errors import InputError
from gradsync.experiments.costs import Known
from gradsync.lifetimes import leftovers
from gradsync.limits import MOST_COUNT, MOST_LENGTH

if TYPE_CHECKING:
    from gradsync.configuration.networks import Described

HALVES = ("all_reduce", "reduce_scatter", "all_gather")  # what schemes send by the backend's own collectives
ITERATIONS = 10  # in which layers are timed
SWITCH = "switch"


@dataclass(frozen=True, kw_only=True)
class AtHand(OnTestbed, Known):
    """Options of what measures, or looks up, what it is not told."""

    workload: str = option(
        "", "layers in backward order; or a model of --cluster", metavar="W.json|MODEL", either="layers", needed=True
    )
    model: str | None = option(
        None,
        "measure its layers here: net.py:FUNCTION or package.module:FUNCTION, or lenet5, resnet50 and so on",
        metavar="MODEL",
        either="layers",
    )
    batch: int = option(32, "--model: samples per rank", metavar="N", least=1, most=MOST_COUNT)
    size: int | None = option(
        None,
        "--model: side of images in pixels, tokens of text",
        metavar="PX",
        least=1,
        most=MOST_LENGTH,
        unset="the model's own",
    )
    device: Device = option("cpu", "where what is measured here computes: cuda takes one GPU per rank, and NCCL")
    allreduce: str | None = option(
        None,
        "cost of an all-reduce: a line, measured bytes,seconds to fit, or start-up and bandwidth of the links, from "
        "which the scheme's collective on its topology is simulated",
        metavar="a=S,b=S_PER_BYTE|POINTS.csv|alpha=S,bandwidth=BYTES_PER_S",
        either="all-reduce",
        unset="measured between ranks here, or of the Slurm allocation",
    )
    network: str | None = option(
        None,
        "a described network: 1gbe, 10gbe, 25gbe, 40gbe, 100gbe, qdr40, fdr56, edr100; inside nodes of several ranks "
        "pcie3, or as 25gbe,nvlink2",
        metavar="NAME[,INSIDE]",
        either="all-reduce",
    )
    ranks: Ranks = option(Ranks(2), "ranks that train; 16x8: 16 nodes of 8 (dense_gpu:16,8)", metavar="N|NODESxRANKS")
    topology: str | None = option(
        None,
        "the network between them: switch, or dense_gpu:4,8 (nodes, GPUs)",
        metavar="NAME[:N,..]",
        unset="switch, or what --ranks says",
    )
    keep: Path | None = option(None, "keep what is measured here", metavar="FOLDER")


Kind = TypeVar("Kind", bound=AtHand)


@contextmanager
def known(options: Kind) -> Iterator[tuple[Kind, Described | None]]:
    """The options as if all had been told, while what was measured is needed; the described network, if one is named.

    Raises InputError for options that don't go together, or what can't be measured.
    """
    from gradsync.runtime.launch import elsewhere

    options, network = _told(options)
    if options.model is None and (options.allreduce or options.cluster):
        if options.keep:
            raise InputError("--keep: nothing is measured: leave it out")
        yield options, network
    elif options.keep:
        yield _measured(options, options.keep), network
    else:
        with leftovers.temporary_folder(Path.cwd() if elsewhere() else None) as folder:
            yield _measured(options, folder), network


def _told(options: Kind) -> tuple[Kind, Described | None]:
    """With the topology of the ranks, and the links of a described network."""
    from gradsync.configuration import networks

    nodes, topology = options.ranks.nodes, options.topology
    if nodes and options.cluster:
        options = replace(options, nodes=options.nodes or nodes[0])
    elif nodes and topology:
        raise InputError(f"--ranks {nodes[0]}x{nodes[1]} is --topology dense_gpu:{nodes[0]},{nodes[1]}: leave one out")
    elif nodes and not (options.allreduce or options.network):
        raise InputError(f"--ranks {nodes[0]}x{nodes[1]}: what links nodes is not measured here: give --network")
    elif nodes:
        topology = f"dense_gpu:{nodes[0]},{nodes[1]}"
    topology = topology or SWITCH
    network = networks.described(options.network, topology.startswith("dense_gpu")) if options.network else None
    allreduce = network.allreduce if network else options.allreduce
    return replace(options, topology=topology, allreduce=allreduce, network=None), network


def _measured(options: Kind, folder: Path) -> Kind:
    """With layers, all-reduces and interference that were measured into the folder, if they were not given."""
    from gradsync.experiments.profile import allreduce, launch, layers
    from gradsync.files.writing import make_folder

    workload, points = folder / launch.WRITTEN[0], folder / launch.WRITTEN[1]
    if options.model is None:
        own: dict[str, Any] = {"ranks": (int(options.ranks),), "kind": HALVES}
        allreduce.measure(taken(allreduce.Options, options, **own, output=points))
        return replace(options, allreduce=str(points))
    if options.allreduce or options.cluster:
        make_folder(folder)
        layers.measure(taken(layers.Options, options, ranks=1, iterations=ITERATIONS, output=workload))
        return replace(options, model=None, workload=str(workload))
    own = {"ranks": int(options.ranks), "kind": HALVES, "iterations": ITERATIONS}
    launch.measure(taken(launch.Options, options, **own, output=folder))
    interference = options.interference or str(folder / launch.WRITTEN[2])
    return replace(options, model=None, workload=str(workload), allreduce=str(points), interference=interference)
