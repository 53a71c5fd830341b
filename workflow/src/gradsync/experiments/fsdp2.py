"""FSDP2 in the ranking of `gradsync advise`: an iteration simulated from the blocks of the model, without a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradsync.errors import InputError
from gradsync.experiments import other_networks

if TYPE_CHECKING:
    from gradsync.configuration.peers import Peer
    from gradsync.experiments.advise import Candidate, Options
    from gradsync.plan.workload import Workload

PEERS = "config/peers.yaml"
KIND = "fsdp2"
SHARDED = {"name": "pipelined", "options": {"effort": 0}}  # a scheme whose ranks update a part of the parameters each


def peers() -> list[Peer]:
    """FSDP2 as it comes, and with parameters that are kept for backward: those of gradsync's own peers."""
    from gradsync.configuration import peers as configuration
    from gradsync.files import packaged

    return [each for each in configuration.load(packaged.file(PEERS)).values() if each.kind == KIND]


def refuse(options: Options) -> None:
    """Raises InputError for steps that are not simulated."""
    if options.accumulate > 1 or options.clip_norm is not None or options.scaled:
        raise InputError("of FSDP2 steps of one micro-batch are simulated, without clipping or a loss scale")


def row(peer: Peer, sharded: Candidate, baseline: float | None) -> dict[str, Any]:
    """What the ranking says of it; `sharded`, a planned scheme, knows the costs and what a rank's own update takes.

    Raises InputError for a workload that doesn't tell the blocks of its model.
    """
    from gradsync.costs.scaled import Scaled
    from gradsync.engine import fully_sharded

    workload, cost = sharded.workload, sharded.known.all_reduce
    computation = sharded.trace.computation_seconds(sharded.plan.pace)
    steps: dict[str, Any] = {
        "kept": not peer.reshard_after_forward,
        "queued": workload.provenance.get("device") != "cpu",
        "update_seconds": max(computation - workload.forward_seconds - workload.backward_seconds, 0.0),
    }
    residual = other_networks.residual(sharded)
    low, made, high = (
        fully_sharded.iteration(workload, Scaled(cost, factor, factor), **steps)
        for factor in (1 - residual, 1.0, 1 + residual)
    )
    tied = 0.0 if residual else other_networks.TIED * made.seconds
    state = sharded.plan.most_bytes("momentum")
    return {
        "scheme": peer.name,
        "label": peer.label,
        "collective": "native",
        "iteration_seconds": made.seconds,
        "low_seconds": low.seconds - tied,
        "high_seconds": high.seconds + tied,
        "over_baseline": other_networks.ratio(made.seconds, baseline),
        "exposed_communication_seconds": made.seconds - made.computation_seconds,
        "messages": made.messages,
        "over_bound": None,
        "buffer_bytes": state + _held(workload, sharded.plan.ranks, kept=steps["kept"]),
        "state_bytes": state,
        "changes_training": "",
        "planned": False,
    }


def _held(workload: Workload, ranks: int, *, kept: bool) -> int:
    """Bytes of a rank: its parts of parameters and gradients, and the most of both that is whole at one time."""
    from gradsync.engine import fully_sharded

    sizes = fully_sharded.units(workload)
    whole = sizes.get(fully_sharded.WHOLE, 0)
    blocks = sorted(size for unit, size in sizes.items() if unit != fully_sharded.WHOLE)
    # the block that is computed, and the one that is gathered meanwhile
    gathered = workload.bytes if kept else whole + sum(blocks[-2:])
    return -(-2 * workload.bytes // ranks) + gathered + max(sizes.values())
