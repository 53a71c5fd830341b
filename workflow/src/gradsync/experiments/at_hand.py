"""What is not known beforehand: a model is measured here, a network is described, or measured between ranks here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from gradsync.configuration.networks import Ranks
from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option, taken
from gradsync.configuration.training import Device
from gradsync.errors import InputError
from gradsync.experiments.costs import FORMS, GIVEN, Known
from gradsync.lifetimes import leftovers
from gradsync.limits import MOST_COUNT, MOST_LENGTH

if TYPE_CHECKING:
    from gradsync.configuration.networks import Described
    from gradsync.configuration.sent_kinds import Sent

ITERATIONS = 10  # in which layers are timed
SWITCH, OF_NODES = "switch", "dense_gpu"


@dataclass(frozen=True, kw_only=True)
class Modelled(Known):
    """Options of what measures the layers of a model that it is given, and takes a described network by its name."""

    assumed: ClassVar[str] = ""  # the network between ranks if nothing tells it

    workload: str = option(
        "", "layers in backward order; or a model of --cluster", metavar="W.json|MODEL", either="layers", needed=True
    )
    model: str | None = option(
        None,
        "measure its layers here: net.py:FUNCTION or package.module:FUNCTION, or lenet5, resnet50 and so on",
        metavar="MODEL",
        either="layers",
    )
    batch: int = option(32, "samples per rank of --model", metavar="N", least=1, most=MOST_COUNT, needs="model")
    size: int | None = option(
        None,
        "side of images of --model in pixels, tokens of text",
        metavar="PX",
        least=1,
        most=MOST_LENGTH,
        unset="the model's own",
        needs="model",
    )
    device: Device = option("cpu", "where what is measured here computes: cuda takes one GPU per rank, and NCCL")
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


@dataclass(frozen=True, kw_only=True)
class AtHand(OnTestbed, Modelled):
    """Options of what also measures all-reduces if it is not told what they cost."""

    assumed = SWITCH

    allreduce: str | None = option(
        None,
        GIVEN,
        metavar=FORMS,
        either="all-reduce",
        unset="measured between ranks here, or of the Slurm allocation",
    )


Kind = TypeVar("Kind", bound=Modelled)


class Told(NamedTuple, Generic[Kind]):
    """Options that tell all, the described network if one was named, and the folder of files that won't stay."""

    options: Kind
    network: Described | None
    passing: Path | None = None

    def lasting(self, text: str) -> str:
        """A text that names such files without their folder."""
        return text.replace(f"{self.passing}/", "") if self.passing else text


@contextmanager
def known(options: Kind, of_scheme: str = "") -> Iterator[Told[Kind]]:
    """The options as if all had been told, while what was measured is needed; `of_scheme`: see `resolved`.

    Raises InputError for options that don't go together, before anything is measured, or what can't be measured.
    """
    told, network = resolved(options, of_scheme)
    if not measures(told):
        if told.keep:
            raise InputError("--keep: nothing is measured: leave it out")
        yield Told(told, network)
        return
    from gradsync.runtime.launch import elsewhere

    _refuse_unread(told)
    if told.keep:
        yield Told(_measured(told, told.keep), network)
    else:
        with leftovers.temporary_folder(Path.cwd() if elsewhere() else None) as folder:
            yield Told(_measured(told, folder), network, folder)


def measures(options: Modelled) -> bool:
    """Whether something is measured here."""
    return options.model is not None or not _priced(options)


def _priced(options: Modelled) -> bool:
    """Whether an option tells what all-reduces cost."""
    return any(each is not None for each in (options.allreduce, options.cluster, options.network))


def resolved(options: Kind, of_scheme: str = "") -> tuple[Kind, Described | None]:
    """With the topology of the ranks, and the links of a described network; nothing is measured.

    `of_scheme` is the topology of the one scheme that is planned, if no option names another. Raises InputError for
    options that don't go together.
    """
    from gradsync import topologies
    from gradsync.configuration import networks

    topology = options.topology
    if nodes := getattr(options.ranks, "nodes", None):
        many, local = nodes
        if topology is not None:
            raise InputError(f"--ranks {many}x{local} is --topology dense_gpu:{many},{local}: leave one out")
        if options.cluster and options.nodes not in (None, many):
            raise InputError(f"--nodes {options.nodes}: --ranks {many}x{local} has {many}: leave one out")
        if options.cluster:
            options = replace(options, nodes=many)
        elif local > 1:
            topology = f"dense_gpu:{many},{local}"
    if topology := topology or options.assumed or None:
        topology = topologies.parse(topology, options.ranks, getattr(options, "ranks_a_node", None)).name
    in_nodes = (topology or of_scheme).startswith(OF_NODES)
    if in_nodes and not _priced(options) and _alone(options):
        raise InputError(f"{topology}: what links nodes is not measured on one machine: give --network")
    for key, value in (("nodes", options.nodes), ("scale", options.scale)):
        if value and not options.cluster:
            raise InputError(f"--{key}: only with --cluster, whose all-reduces it chooses from")
    network = networks.described(options.network, in_nodes) if options.network is not None else None
    allreduce = network.allreduce if network else options.allreduce
    return replace(options, topology=topology, allreduce=allreduce, network=None), network


def _alone(options: Modelled) -> bool:
    """Whether ranks are processes of this machine, without a testbed between them."""
    from gradsync.runtime.launch import elsewhere

    return not (getattr(options, "testbed", None) or elsewhere())


def _refuse_unread(options: Modelled) -> None:
    """Raises InputError for a file that will be read when all has been measured; a pipe can be read only then."""
    from gradsync.costs.contention_points import Contention
    from gradsync.costs.interference import Interference

    for path, load in ((options.interference, Interference.load), (options.contention, Contention.load)):
        if path and not Path(path).is_fifo():
            load(path, options.ranks)


def _sent(options: Modelled) -> Sent:
    """What schemes send by the backend's own collectives besides all-reduces of all ranks.

    These are the halves of all-reduces and, between nodes of several ranks, the parts of sums by level.
    """
    from gradsync.configuration import sent_kinds
    from gradsync.configuration.scheme import BY_LEVEL, Scheme
    from gradsync.costs.half import HALVES
    from gradsync.plan import WORLD

    halves = sent_kinds.Sent(tuple(f"{kind}@{WORLD}" for kind in HALVES))
    topology = options.topology or SWITCH
    if not topology.startswith(OF_NODES):
        return halves
    levels = Scheme(name=BY_LEVEL, schedule="wfbp", collective=BY_LEVEL, topology=topology)
    parts = sent_kinds.of_scheme(levels, options.ranks)
    if any(axis.size == 1 for axis in parts.axes):
        return halves  # sums by level would be sums of all ranks
    return sent_kinds.Sent((*halves.kinds, *parts.kinds), parts.axes)


def _measured(options: Kind, folder: Path) -> Kind:
    """With layers, all-reduces and interference that were measured into the folder, if they were not given."""
    from gradsync.experiments.profile import allreduce, launch, layers
    from gradsync.files.writing import make_folder
    from gradsync.runtime.launch import VARIABLES, is_rank

    if is_rank():
        raise InputError(
            f"gradsync starts ranks of its own, and {', '.join(VARIABLES)} make this one: unset them, or give "
            "--workload and the cost of messages"
        )
    workload, points = folder / launch.WRITTEN[0], folder / launch.WRITTEN[1]
    make_folder(folder)
    sent = _sent(options)
    own: dict[str, Any] = {"kind": sent.kinds, "axes": sent.places}
    if options.model is None:
        own["ranks"] = (int(options.ranks),)
        allreduce.measure(taken(allreduce.Options, options, **own, output=points))
        return replace(options, allreduce=str(points))
    if _priced(options):
        layers.measure(taken(layers.Options, options, ranks=1, iterations=ITERATIONS, output=workload))
        return replace(options, model=None, workload=str(workload))
    own |= {"ranks": int(options.ranks), "iterations": ITERATIONS}
    launch.measure(taken(launch.Options, options, **own, output=folder))
    interference = options.interference or str(folder / launch.WRITTEN[2])
    return replace(options, model=None, workload=str(workload), allreduce=str(points), interference=interference)
