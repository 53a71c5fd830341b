"""Plan for a model whose layers are measured here, or for a network that is described by its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gradsync.configuration.networks import Ranks
from gradsync.configuration.options import option, taken
from gradsync.errors import InputError
from gradsync.experiments import at_hand, predict
from gradsync.experiments.at_hand import Modelled

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme


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
    if options.device != "cpu" and not at_hand.measures(options):
        raise InputError("--device: nothing is measured here: leave it out, or give --model")
    scheme = predict.chosen_scheme(options)
    options = _with_nodes(options, scheme)
    known, _ = at_hand.resolved(options, _network(options, scheme))
    for part in predict.chosen_scheme(known).parts:
        part.refuse_ranks(known.ranks, known.ranks_a_node)
    with at_hand.known(options, _network(options, scheme)) as told:
        return predict.plan(taken(predict.Options, told.options, ranks=int(options.ranks)), told.lasting)


def _with_nodes(options: Options, scheme: Scheme) -> Options:
    """The ranks of a node as told by either option; phases have topologies of their own, which no other is put for."""
    if options.ranks.nodes is None:
        return options
    _, local = options.ranks.nodes
    if options.ranks_a_node not in (None, local):
        raise InputError(f"--ranks-a-node {options.ranks_a_node}: --ranks has {local} a node: leave one out")
    if not scheme.phases:
        return options
    return replace(options, ranks=Ranks(int(options.ranks)), ranks_a_node=local)


def _network(options: Options, scheme: Scheme) -> str:
    """The topology of a scheme that has one of its own."""
    part = scheme.parts[0]
    return "" if options.topology else part.network(options.ranks, options.ranks_a_node).name
