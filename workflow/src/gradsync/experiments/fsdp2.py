"""FSDP2 in the ranking of `gradsync advise`: an iteration simulated from the blocks of the model, without a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradsync.engine import fully_sharded
from gradsync.errors import InputError
from gradsync.experiments import other_networks
from gradsync.plan import DTYPE_BYTES

if TYPE_CHECKING:
    from gradsync.configuration.peers import Peer
    from gradsync.experiments.advise import Candidate, Options
    from gradsync.plan.workload import Workload

PEERS = "config/peers.yaml"
KIND = "fsdp2"
FLOAT = DTYPE_BYTES["float32"]  # of batch-norm statistics
AT_ONCE = "single"  # a scheme that updates all parameters when backward is over, as FSDP2 updates a rank's own


def peers() -> list[Peer]:
    """FSDP2 as it comes, and with parameters that are kept for backward: those of gradsync's own peers."""
    from gradsync.configuration import peers as configuration
    from gradsync.files import packaged

    return [each for each in configuration.load(packaged.file(PEERS)).values() if each.kind == KIND]


def refuse(options: Options) -> None:
    """Raises InputError for steps that are not simulated."""
    from gradsync import optimizers

    if options.accumulate > 1 or options.clip_norm is not None or options.scaled:
        raise InputError("of FSDP2 steps of one micro-batch are simulated, without clipping or a loss scale")
    if optimizers.get(options.optimizer).ratios is not None:
        raise InputError(
            f"of FSDP2 no optimizer is simulated that takes norms of whole tensors, as {options.optimizer} does"
        )


def row(peer: Peer, whole: Candidate, options: Options, baseline: float | None) -> dict[str, Any]:
    """What the ranking says of it; `whole`, a scheme that updates at once, knows the costs and what an update takes.

    Raises InputError for a workload of processors, or one that doesn't tell the blocks of its model.
    """
    from gradsync.costs.scaled import Scaled

    workload, known, ranks = whole.workload, whole.known, whole.plan.ranks
    if workload.provenance.get("device") == "cpu":
        raise InputError(
            "FSDP2 is simulated on GPUs alone; on processors its messages are not what it waits for most: gradsync "
            "train --peer fsdp2 measures it"
        )
    computation = whole.trace.computation_seconds(whole.plan.pace)
    update = max(computation - workload.forward_seconds - workload.backward_seconds, 0.0) / ranks
    statistics = FLOAT * workload.statistics if options.statistics == "broadcast" else 0
    residual = other_networks.residual(whole)
    low, made, high = (
        fully_sharded.iteration(
            workload,
            Scaled(known.all_reduce, factor, factor),
            kept=not peer.reshard_after_forward,
            update_seconds=update,
            broadcast_seconds=factor * known.network.of("broadcast").seconds(statistics) if statistics else 0.0,
        )
        for factor in (1 - residual, 1.0, 1 + residual)
    )
    tied = 0.0 if residual else other_networks.TIED * made.seconds
    state = -(-whole.plan.most_bytes("momentum") // ranks)
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
        "buffer_bytes": state + _held(workload, ranks, kept=not peer.reshard_after_forward),
        "state_bytes": state,
        "changes_training": "",
        "on_gpus": True,
        "planned": False,
    }


def notes(options: Options) -> list[str]:
    """What rows leave out that others have."""
    return ["rows of FSDP2 are without interference, which slows the others"] if options.interference else []


def _held(workload: Workload, ranks: int, *, kept: bool) -> int:
    """Bytes of a rank in backward: its parts of parameters and gradients, and what is whole at one time.

    Those are gathered parameters, the gradients of the whole and of a block, the message that a block is scattered
    from, and the one that the next is gathered into.
    """
    sizes = fully_sharded.units(workload)
    whole = sizes.get(fully_sharded.WHOLE, 0)
    blocks = sorted(size for unit, size in sizes.items() if unit != fully_sharded.WHOLE)
    gathered = workload.bytes if kept else whole + sum(blocks[-2:])
    messages = sum(blocks[-1:]) * (2 if kept else 3)
    return -(-2 * workload.bytes // ranks) + gathered + whole + messages
