"""A rank's place among the others: rendezvous from the environment, process groups, agreement on a plan.

The environment is torchrun's: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Whoever starts the ranks sets it (our own
launcher, torchrun, a cluster's), so that nothing else has to know where ranks run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch.distributed as dist

from gradsync.errors import InputError, RunError
from gradsync.plan import COMPUTE, Collective, Plan
from gradsync.runtime.launch import VARIABLES


@contextmanager
def process_group(timeout_seconds: float = 120.0) -> Iterator[tuple[int, int]]:
    """Join the others over Gloo; gives (rank, ranks) and leaves the group at the end.

    Raises InputError for a bad environment and RunError where the others can't be reached in time.
    """
    try:
        rank, ranks, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        host = os.environ["MASTER_ADDR"]
    except (KeyError, ValueError) as error:
        raise InputError(f"rendezvous: {error}: ranks need {', '.join(VARIABLES)} in their environment") from None
    listen = os.environ.get("GRADSYNC_LISTEN_FD") if rank == 0 else None
    try:
        store = dist.TCPStore(
            host,
            port,
            ranks,
            is_master=rank == 0,
            timeout=timedelta(seconds=timeout_seconds),
            master_listen_fd=int(listen) if listen else None,
        )
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout_seconds)
        )
    except (RuntimeError, dist.DistError) as error:
        reason = str(error).splitlines()[0]
        if "EADDRINUSE" in reason or "address already in use" in reason.lower():
            raise RunError(
                f"rank {rank}: port {port} is in use on {host}: end the program that holds it, or set MASTER_PORT to "
                "another one for all ranks"
            ) from None
        raise RunError(f"rank {rank}: no rendezvous with the other ranks at {host}:{port}: {reason}") from None
    try:
        yield rank, ranks
    except (RuntimeError, dist.DistError) as error:
        if "gloo" not in str(error).lower():
            raise
        raise RunError(f"rank {rank}: another rank is gone: {str(error).strip().splitlines()[0]}") from None
    finally:
        dist.destroy_process_group()


@dataclass
class Groups:
    """Process groups of a plan: each lane has connections of its own, since messages of one group share them.

    Collective: every rank makes them in the same order.
    """

    groups: dict[tuple[str, tuple[int, ...]], dist.ProcessGroup] = field(default_factory=dict)

    def prepare(self, plan: Plan) -> None:
        """Make the groups that `plan` uses and that are not there yet."""
        everyone = tuple(range(plan.ranks))
        wanted = {(op.lane, everyone) for role in plan.roles for op in role.flat if op.lane != COMPUTE}
        wanted |= {
            (op.lane, op.ranks) for role in plan.roles for op in role.flat if isinstance(op, Collective) and op.ranks
        }
        for lane, ranks in sorted(wanted):
            if (lane, ranks) not in self.groups:
                self.groups[lane, ranks] = dist.new_group(list(ranks), backend="gloo")

    def of(self, lane: str, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """The group of `ranks` on `lane`."""
        return self.groups[lane, ranks]

    def close(self) -> None:
        """Leave all of them."""
        for group in self.groups.values():
            dist.destroy_process_group(group)
        self.groups.clear()


def agree(plan: Plan, rank: int) -> None:
    """Compare the plan's digest over all ranks before anything is sent; raises RunError where they differ.

    Two equal messages swapped on one rank would give wrong sums without any error.
    """
    if plan.ranks != dist.get_world_size():
        raise RunError(f"plan {plan.name!r} is for {plan.ranks} ranks, {dist.get_world_size()} are running")
    digests: list[str] = [""] * plan.ranks
    dist.all_gather_object(digests, plan.digest)
    others = [peer for peer, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise RunError(
            f"plan {plan.name!r}: rank(s) {', '.join(map(str, others))} hold another plan than rank 0 "
            f"({digests[0][:12]} on rank 0, {digests[others[0]][:12]} on rank {others[0]}): nothing was sent"
        )
