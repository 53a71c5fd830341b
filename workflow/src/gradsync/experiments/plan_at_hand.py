"""Plan for a model whose layers are measured here, or for a network that is described by its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync import topologies
from gradsync.configuration.options import option, taken
from gradsync.errors import InputError
from gradsync.experiments import at_hand, predict
from gradsync.experiments.at_hand import Modelled
from gradsync.experiments.costs import of_text
from gradsync.files import disk

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme

NODES = "dense_gpu"
PLAN_BYTES = 1e6


@dataclass(frozen=True, kw_only=True)
class Options(Modelled, predict.Options):
    """Options of `gradsync plan`."""

    topology: str | None = option(
        None,
        "of the collective: bcube, or bcube:3,2",
        metavar="NAME[:N,..]",
        unset="what --ranks says, else the scheme's, else the one that it is made for",
    )


def plan(options: Options) -> dict[str, Any]:
    """What `predict.plan` gives of options that tell all.

    Raises InputError for options that don't go together, or a scheme that can't be planned, before layers are measured;
    and for a model that can't be measured.
    """
    predict.refuse(options)
    if at_hand.measures(options):
        for path in filter(None, (options.output, options.prediction)):
            disk.refuse(path.parent, PLAN_BYTES, "the plan")
    elif options.device != "cpu":
        raise InputError("--device: nothing is measured here: leave it out, or give --model")
    options, scheme = _on_nodes(options), predict.chosen_scheme(options)
    network, of_scheme = _networks(options, scheme)
    at_hand.resolved(options, network or of_scheme)
    for part in scheme.parts:
        on_network = predict.on(network, part)
        on_network.refuse_ranks(options.ranks, options.ranks_a_node)
        if options.model and options.allreduce and not Path(options.allreduce).is_fifo():  # a pipe is read once
            of_text(options.allreduce, on_network, int(options.ranks))
    with at_hand.known(options, network or of_scheme) as told:
        known = taken(predict.Options, told.options, ranks=int(options.ranks))
        return predict.plan(known, scheme=scheme, network=network, shown=told.lasting)


def _on_nodes(options: Options) -> Options:
    """With the ranks of a node that --ranks tells; raises InputError if another option tells others."""
    if options.ranks.nodes is None:
        return options
    _, local = options.ranks.nodes
    if options.ranks_a_node not in (None, local):
        raise InputError(f"--ranks-a-node {options.ranks_a_node}: --ranks has {local} a node: leave one out")
    return replace(options, ranks_a_node=local)


def _networks(options: Options, scheme: Scheme) -> tuple[str, str]:
    """(the topology of schemes without one of their own, that of a scheme made for nodes), empty if there is none.

    A described network has links inside of nodes if several ranks share one, and then all parts of a scheme are on it.

    Raises InputError for ranks that a part can't have, and for a method of its own on nodes of several ranks.
    """
    for part in scheme.parts:
        part.refuse_ranks(options.ranks, options.ranks_a_node)
    if options.topology or options.cluster:
        return "", options.topology or ""
    networks = (part.network(options.ranks, options.ranks_a_node).name for part in scheme.parts)
    of_scheme = next((name for name in networks if name.startswith(NODES)), "")
    local = options.ranks_a_node or 1
    if local == 1 or not (options.network or options.ranks.nodes):
        return (of_scheme if options.network else ""), of_scheme
    if not scheme.parts[0].averaged:
        raise InputError(
            f"--schedule {scheme.name}: a method of its own, whose messages take no notice of nodes: give --ranks "
            f"{int(options.ranks)} alone"
        )
    return topologies.parse(NODES, options.ranks, local).name, of_scheme
