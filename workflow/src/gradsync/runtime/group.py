"""A rank's place among the others: rendezvous from the environment, process groups, agreement on a plan.

The environment is torchrun's: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Whoever starts the ranks sets it (our own
launcher, torchrun, a cluster's), so that nothing else has to know where ranks run.

The default group is Gloo's everywhere: what ranks agree on is small, lies in the host's memory, and a rank that is
gone is noticed at once. On GPUs, gradients travel in further groups, of NCCL.
"""

from __future__ import annotations

import faulthandler
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gradsync.collectives import NATIVE, in_memory
from gradsync.errors import InputError, RunError
from gradsync.plan import Collective, Plan, Recv, RecvAny, Reply, Send
from gradsync.rounds.lowering import rails, shape_of
from gradsync.runtime import devices, listening, shared_memory
from gradsync.runtime.bells import Bells
from gradsync.runtime.devices import Device
from gradsync.runtime.fabric import fabric
from gradsync.runtime.failures import explain, leave_at_once
from gradsync.runtime.launch import BAD_INPUT, VARIABLES
from gradsync.runtime.links import watched

# How long ranks wait for one another. One that has died is noticed at once, whatever the limit: these are for one that
# is there and does nothing.
RENDEZVOUS_SECONDS = 120.0  # all ranks must have come by then
MESSAGE_SECONDS = 600.0  # for a message of a lane, channel or stock DDP: NCCL's own default
CONTROL_SECONDS = 6 * 3600.0  # for what one rank does for all: oracle, test samples, one rank alone, checkpoint
STDERR = 2  # the descriptor: `sys.stderr` may be a stream of a test, without one


@contextmanager
def process_group(timeout_seconds: float = RENDEZVOUS_SECONDS, device: str = devices.CPU) -> Iterator[tuple[int, int]]:
    """Join the others over Gloo, each with a device of its own; gives (rank, ranks). All leave the group together.

    `timeout_seconds` is for the rendezvous. In the default group, over which ranks agree and meet, a rank waits
    `CONTROL_SECONDS` at most; it carries no gradients, which go over groups of `own_group`.

    Raises InputError for a bad environment or, if `device` is cuda, a rank without a GPU, and RunError if the others
    can't be reached in time. On a testbed, a link that is cut meanwhile ends the process. A crash of native code prints
    the Python stack of each thread on stderr.
    """
    faulthandler.enable(STDERR)
    with watched(), _joined(timeout_seconds, device) as place:
        yield place


@contextmanager
def _joined(timeout_seconds: float, device: str) -> Iterator[tuple[int, int]]:
    try:
        rank, ranks, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        host = os.environ["MASTER_ADDR"]
    except (KeyError, ValueError) as error:
        raise InputError(f"rendezvous: {error}: ranks need {', '.join(VARIABLES)} in their environment") from None
    # torchrun itself holds the store if this variable says so
    listens = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(
            host,
            port,
            ranks,
            is_master=listens,
            timeout=timedelta(seconds=timeout_seconds),
            master_listen_fd=_listening(host, port) if listens else None,
        )
        dist.init_process_group(
            "gloo",
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=CONTROL_SECONDS),
        )
    except (RuntimeError, dist.DistError, OSError) as error:
        reason = str(error).splitlines()[0]
        if "EADDRINUSE" in reason or "address already in use" in reason.lower():
            raise RunError(
                f"rank {rank}: port {port} is in use on {host}: end the program that holds it, or set MASTER_PORT to "
                "another one for all ranks"
            ) from None
        raise RunError(f"rank {rank}: no rendezvous with the other ranks at {host}:{port}: {reason}") from None
    leave: Callable[[], object] = dist.destroy_process_group
    on_gpus = False
    try:
        if device != devices.CPU:
            _refuse_devices(device)
            on_gpus = True
        yield rank, ranks
        dist.barrier()  # ranks leave together: one that left early would not learn that another one died meanwhile
    except BaseException as error:
        if on_gpus:
            # NCCL closes a group together with the other ranks, which may be gone or in another message
            leave = leave_at_once(BAD_INPUT if isinstance(error, InputError) else 1)
        explained = explain(error, rank)
        if explained is None:
            raise
        raise explained from None
    finally:
        leave()


def _listening(host: str, port: int) -> int | None:
    """The descriptor of the socket at which rank 0 listens: the launcher's, or a new one. None: torch makes one."""
    if descriptor := os.environ.get("GRADSYNC_LISTEN_FD"):
        return int(descriptor)
    listener = listening.at(host, port)
    return listener.detach() if listener else None


def _refuse_devices(kind: str) -> None:
    """Have every rank take its device; raises InputError on all ranks if one has none, or two have the same."""
    problem, identity = "", ("", "")
    try:
        identity = devices.pick(kind).identity()
    except InputError as error:
        problem = str(error)
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, (problem, identity))
    for rank, (reason, _) in enumerate(reports):
        if reason:
            raise InputError(f"rank {rank}: {reason}")
    (identity, taken), *_ = Counter(identity for _, identity in reports).most_common(1)
    if taken > 1:
        same = ", ".join(str(rank) for rank, (_, other) in enumerate(reports) if other == identity)
        raise InputError(
            f"--device cuda: ranks {same} share {identity[1]} on {identity[0]}, NCCL wants one GPU per rank: start "
            "fewer ranks on a node, or let the launcher set LOCAL_RANK"
        )


def own_group(device: Device, ranks: Sequence[int] | None = None, rail: int = 0, lane: int = 0) -> dist.ProcessGroup:
    """A group of `ranks` (None: all) over the backend of `device`, with connections of its own. Collective over all.

    A rank waits in it for `MESSAGE_SECONDS` at most. On a testbed, they have the share of the links of `lane`.

    Raises InputError if a testbed has no switch that joins them on that rail.
    """
    members = None if ranks is None else list(ranks)
    wiring, limit = fabric(), timedelta(seconds=MESSAGE_SECONDS)
    if wiring is None:
        group = dist.new_group(members, timeout=limit, backend=device.backend)
    else:
        everyone = tuple(range(dist.get_world_size()) if ranks is None else ranks)
        if len(everyone) > 1 and everyone not in wiring.parts(everyone, rail):
            raise InputError(_apart(everyone))
        with wiring.on(rail, lane):
            group = dist.new_group(members, timeout=limit, backend=device.backend)
    if device.queued:  # NCCL connects with the first message, which shall be none that is timed
        if dist.get_rank(group) >= 0:
            dist.all_reduce(torch.zeros(1, device=device.torch_device), group=group)
        settle(device)
    return group


def control_group(ranks: Sequence[int]) -> dist.ProcessGroup:
    """A group over Gloo in which some ranks meet, as all of them do in the default one. Collective over all ranks."""
    return dist.new_group(list(ranks), timeout=timedelta(seconds=CONTROL_SECONDS), backend="gloo")


def settle(device: Device, control: dist.ProcessGroup | None = None) -> None:
    """Wait until the device of every rank has done what was queued. Collective over `control` (None: all ranks).

    Ranks first meet on their hosts: one that is gone is an error there, while its messages would be waited for.
    """
    if device.queued:
        dist.barrier(group=control)
        device.synchronize()


@dataclass
class Groups:
    """Process groups of a plan: each lane, channel and rail has connections of its own.

    Messages of one group share its connections: those of a channel, and of the lane that has its name.

    On a GPU each lane has a queue of its own too. Collective: every rank makes them in the same order.
    """

    device: Device = devices.PROCESSOR
    groups: dict[tuple[str, tuple[int, ...], int], dist.ProcessGroup] = field(default_factory=dict)
    queues: dict[str, Any] = field(default_factory=dict)
    bells: dict[tuple[str, tuple[int, ...]], Bells] = field(default_factory=dict)
    """By lane and ranks, of those that share memory."""
    _stock: dist.ProcessGroup | None = None

    def prepare(self, plan: Plan) -> None:
        """Make the groups that `plan` uses and that are not there yet.

        Raises InputError if ranks that sum in memory have none in common.
        """
        everyone = tuple(range(plan.ranks))
        wanted = set()
        in_one_memory = set()
        for op in (op for role in plan.roles for op in role.flat):
            if isinstance(op, Collective) and in_memory(op.algorithm):
                in_one_memory |= {(op.lane, group) for group in plan.groups(op)}
            elif isinstance(op, Collective):
                rails_of = range(_rails(op, plan.group_size(op)))
                wanted |= {(op.lane, group, rail) for group in plan.groups(op) for rail in rails_of}
            elif isinstance(op, Send | Recv | RecvAny | Reply):
                wanted.add((op.channel, everyone, getattr(op, "rail", 0)))
        for lane, ranks, rail in sorted(wanted):
            self.add(lane, ranks, rail)
        if in_one_memory:
            shared_memory.refuse_apart(sorted({ranks for _, ranks in in_one_memory}))
        for lane, ranks in sorted(in_one_memory):
            if (lane, ranks) not in self.bells:
                self.bells[lane, ranks] = Bells(dist.get_rank(), ranks, MESSAGE_SECONDS)

    def add(self, lane: str, ranks: tuple[int, ...], rail: int = 0) -> None:
        """Make the group of a lane or channel unless it exists; on a testbed one per switch that joins some ranks."""
        wiring = fabric()
        for part in [ranks] if wiring is None else wiring.parts(ranks, rail):
            if (lane, part, rail) not in self.groups:
                self.groups[lane, part, rail] = own_group(self.device, part, rail, _number(lane))

    def of(self, lane: str, ranks: tuple[int, ...], rail: int = 0) -> dist.ProcessGroup:
        """The group of a lane or channel on a rail; raises InputError if a testbed has no switch that joins `ranks`."""
        group = self.groups.get((lane, ranks, rail))
        if group is None:
            raise InputError(_apart(ranks))
        return group

    def between(
        self, lane: str, ranks: tuple[int, ...], rail: int, rank: int, peer: int
    ) -> tuple[dist.ProcessGroup, int]:
        """(the group in which `rank` and `peer` communicate, the peer's place in it).

        It is the group of `ranks`, or on a testbed of those of them in one switch.

        Raises InputError if no switch of that rail joins the two.
        """
        wiring = fabric()
        for part in [ranks] if wiring is None else wiring.parts(ranks, rail):
            if rank in part and peer in part:
                return self.groups[lane, part, rail], part.index(peer)
        raise InputError(
            f"ranks {rank} and {peer} are in no switch of rail {rail}: the testbed's topology is not the plan's"
        )

    def queue(self, lane: str) -> Any:
        """The queue of `lane` (None on a processor)."""
        if lane not in self.queues:
            self.queues[lane] = self.device.queue()
        return self.queues[lane]

    def stock(self) -> dist.ProcessGroup:
        """The group of all stock DDP of a launch. Collective over all ranks.

        Raises InputError on a testbed without a switch that joins all ranks.
        """
        if self._stock is None:
            self._stock = own_group(self.device)
        return self._stock

    def close(self) -> None:
        """Leave all groups."""
        for group in (*self.groups.values(), *([self._stock] if self._stock else [])):
            dist.destroy_process_group(group)
        for bells in self.bells.values():
            bells.close()
        self.groups.clear()
        self.bells.clear()
        self._stock = None


def _number(lane: str) -> int:
    """The number of a lane: network2 is the third of several; one without a number is the only one."""
    return int(lane[len(lane.rstrip("0123456789")) :] or 0)


def _apart(ranks: Sequence[int]) -> str:
    return (
        f"a message between ranks {ranks[0]} to {ranks[-1]}: no switch of the testbed joins all of them; collectives "
        "of the backend's own need topology switch"
    )


def _rails(op: Collective, ranks: int) -> int:
    """The number of rails that a collective may send on."""
    return 1 if op.algorithm == NATIVE else rails(op.algorithm, shape_of(op, ranks), op.root, op.kind)


def agree(plan: Plan, rank: int) -> None:
    """Compare the plan's digest over all ranks before anything is sent; raises RunError if they differ.

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
