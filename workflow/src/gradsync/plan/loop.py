"""The loop of a scheme: its roles, each with the body of its loop, and the plan that all of them make.

Operations of one *lane* run in the order of the body; lanes overlap. An operation also waits for those it names in
`after` (this turn) and `after_previous` (the turn before; nothing to wait for in the first turn). A send occupies its
lane only until it is posted, every other operation until it is finished.

Two ranks exchange a message over a *channel*, which both name: the send and the receive of equal channel, rail and tag
belong together, in order, whatever lanes they are on. The messages of a channel share its connections.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.plan import repeats
from gradsync.plan.alike import alike
from gradsync.plan.buffers import BYTES, CLOSED, DTYPE_BYTES, KEYED, WORLD, Buffer, Ref, Tensor
from gradsync.plan.mesh import Axis, Group, Mesh
from gradsync.plan.operations import Collective, Local, Need, Operation, Ready
from gradsync.plan.shards import Shards

VERSION = 4


@dataclass(frozen=True)
class Role:
    """The loop body of some ranks; all workers of a synchronous scheme share one."""

    __pydantic_config__ = CLOSED
    name: str
    ranks: tuple[int, ...]
    body: tuple[Operation, ...]

    @cached_property
    def until_stopped(self) -> bool:
        """True if the role serves others and has no number of turns of its own."""
        return repeats.until_stopped(self.body)

    @cached_property
    def flat(self) -> tuple[Any, ...]:
        """The operations of one turn with every repeat spelled out (see `plan/repeats.py`); raises InputError."""
        return repeats.spelled_out(self.body, self.name)

    @cached_property
    def pass_of(self) -> dict[str, int]:
        """Needs and readies -> the pass of their turn that they belong to: 0, or with micro-batches 0, 1, ..

        A pass is a forward and a backward: after a gradient, the next need is that of another pass.
        """
        pass_of: dict[str, int] = {}
        number = 0
        ready: set[str | None] = set()  # tensors whose gradient this pass has made
        for op in self.flat:
            if (isinstance(op, Need) and ready) or (isinstance(op, Ready) and op.tensor in ready):
                number += 1
                ready.clear()
            if isinstance(op, Ready):
                ready.add(op.tensor)
            if isinstance(op, Need | Ready):
                pass_of[op.name] = number
        return pass_of

    @cached_property
    def passes(self) -> int:
        """Forward and backward passes in a turn, each on samples of its own."""
        return max(self.pass_of.values(), default=-1) + 1

    @cached_property
    def iterations(self) -> int:
        """Passes in a turn whose gradients are applied by themselves: later micro-batches add theirs to the first's."""
        return len({self.pass_of[op.name] for op in self.flat if isinstance(op, Ready) and not op.adds})

    def times(self, name: str, turn: int) -> int:
        """How many operations have done before what this one does in that turn: the same kernel, to the same ranges."""
        number, count = self._alike[name]
        return turn * count + number

    @cached_property
    def _alike(self) -> dict[str, tuple[int, int]]:
        """Local operations -> which one of its turn it is of those that do the same, as in a repeat; how many do."""
        local = [op for op in self.flat if isinstance(op, Local)]
        counts = Counter((op.kernel, op.writes) for op in local)
        before: Counter[tuple[str, tuple[Ref, ...]]] = Counter()
        numbers = {}
        for op in local:
            key = op.kernel, op.writes
            numbers[op.name] = before[key], counts[key]
            before[key] += 1
        return numbers


@dataclass(frozen=True)
class Plan:
    """What a scheme has planned. The docstring of this module says what order, lanes and waits mean."""

    __pydantic_config__ = CLOSED
    name: str
    ranks: int
    tensors: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    roles: tuple[Role, ...]
    provenance: dict[str, str] = dataclasses.field(default_factory=dict)
    version: int = VERSION
    axes: tuple[Axis, ...] = ()

    @cached_property
    def role_of(self) -> dict[int, Role]:
        """Rank -> its role."""
        return {rank: role for role in self.roles for rank in role.ranks}

    @cached_property
    def mesh(self) -> Mesh:
        """Where the ranks lie on the axes."""
        return Mesh(self.ranks, self.axes)

    def group(self, op: Collective, rank: int) -> Group:
        """The ranks with which a rank has a collective, in order."""
        return op.ranks or self.mesh.group(rank, op.over)

    def group_size(self, op: Collective) -> int:
        """The ranks of a group of a collective."""
        return len(op.ranks) or self.mesh.size(op.over)

    def groups(self, op: Collective) -> list[Group]:
        """All groups that have a collective."""
        return [op.ranks] if op.ranks else list(self.mesh.groups(op.over))

    def root(self, op: Collective, rank: int) -> int:
        """The root of a collective that a rank has, as a rank."""
        return op.root if op.over == WORLD else self.group(op, rank)[op.root]

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        """Name -> buffer."""
        return {buffer.name: buffer for buffer in self.buffers}

    @cached_property
    def tensor(self) -> dict[str, Tensor]:
        """Name -> tensor."""
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def elements(self) -> int:
        """The elements of all tensors together."""
        return self.tensors[-1].stop if self.tensors else 0

    @cached_property
    def of_bytes(self) -> bool:
        """True if gradients, or what else is keyed by parameters, are bytes of an unknown type."""
        return any(buffer.role in KEYED and buffer.dtype == BYTES for buffer in self.buffers)

    def holding(self, role: str) -> str | None:
        """The first buffer of that role that every rank has for itself; None if there is none."""
        return next((buffer.name for buffer in self.buffers if buffer.role == role and not buffer.shared), None)

    @cached_property
    def passes(self) -> int:
        """Forward and backward passes in a turn: micro-batches of a step, or iterations of a rank's own."""
        return self.role_of[self.pace].passes

    @cached_property
    def iterations(self) -> int:
        """Iterations in a turn: 1, or as many as ranks go on by themselves before they synchronise."""
        return max(1, self.role_of[self.pace].iterations)

    @cached_property
    def symmetric(self) -> bool:
        """True if the plan has one role, whose collectives are over axes: every rank does the same."""
        return len(self.roles) == 1 and all(
            isinstance(op, Need | Ready | Local) or (isinstance(op, Collective) and not op.ranks)
            for op in self.roles[0].flat
        )

    @cached_property
    def alike(self) -> tuple[str, ...]:
        """Names of the buffers that outlast a turn and hold the same on all ranks between two turns (`alike.py`)."""
        return alike(self)

    @cached_property
    def shards(self) -> Shards:
        """What each rank has of the buffers, and where."""
        return Shards(self.mesh, self.buffer)

    def bytes_of_rank(self, rank: int, *roles: str) -> int:
        """Bytes that a rank allocates for its buffers of these roles; without any, for all of its buffers."""
        return sum(
            self.shards.elements(buffer.name, rank) * DTYPE_BYTES[buffer.dtype]
            for buffer in self.buffers
            if not roles or buffer.role in roles
        )

    def most_bytes(self, *roles: str) -> int:
        """Bytes that no rank allocates more than for its buffers of these roles, or for all.

        The last place on an axis has the largest piece of whatever is cut over it.
        """
        return self.bytes_of_rank(self.ranks - 1, *roles)

    @cached_property
    def pace(self) -> int:
        """The rank whose turns are the iterations: the first that computes gradients, else the first that has turns."""
        working = [role for role in self.roles if any(isinstance(op, Ready) for op in role.flat)]
        turning = [role for role in self.roles if not role.until_stopped]
        return min(role.ranks[0] for role in (working or turning or self.roles))

    def bytes_of(self, refs: tuple[Ref, ...]) -> int:
        """Bytes that a rank takes of the ranges; of pieces, their mean."""
        return sum(
            (ref.stop - ref.start) * DTYPE_BYTES[self.buffer[ref.buffer].dtype] // self.mesh.pieces(ref) for ref in refs
        )

    def communications(self, role: Role | None = None) -> list[Any]:
        """The operations of a role (default: the first) that move data between ranks, in launch order."""
        verbs = ("send", "recv", "recv_any", "reply", "collective", "shared_read", "shared_add")
        return [op for op in (role or self.roles[0]).flat if op.verb in verbs]

    def messages(self, role: Role | None = None) -> list[list[str]]:
        """Tensor names of each message that sums gradients, dense or compressed, in the order sent.

        What is copied back before a compressed message is decoded has travelled with it.
        """
        messages = []
        beside: dict[str, list[str]] = defaultdict(list)  # lane -> tensors
        for op in (role or self.roles[0]).flat:
            if isinstance(op, Local) and op.kernel == "copy":
                beside[op.lane] += self._tensors_in(op.writes)
            elif _sums(op) or _sums_sparsely(op):
                names = self._tensors_in(op.writes)
                if _sums_sparsely(op):
                    names = sorted(names + beside.pop(op.lane, []), key=lambda name: self.tensor[name].start)
                if names:  # not, say, the statistics of batch normalisation
                    messages.append(list(dict.fromkeys(names)))
        return messages

    def _tensors_in(self, refs: tuple[Ref, ...]) -> list[str]:
        """Names of the tensors of which gradients may lie in these ranges."""
        return [
            tensor.name
            for ref in refs
            if self._keyed(ref)
            for tensor in self.tensors
            if tensor.start < ref.stop and ref.start < tensor.stop
        ]

    def _keyed(self, ref: Ref) -> bool:
        """True if elements of its buffer may be those of the tensors; a gradient in another type lies in scratch."""
        buffer = self.buffer[ref.buffer]
        return buffer.role in (*KEYED, "scratch") and buffer.elements == self.tensors[-1].stop

    def to_json(self) -> str:
        """Canonical JSON; equal plans give equal text."""
        return json.dumps(_ADAPTER.dump_python(self, mode="json", exclude_defaults=False), sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: what ranks compare before they start."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str, where: str = "plan") -> Plan:
        """Parse and validate; raises InputError that names the place."""
        content = reading.parse_json(text, f"{where}: not a plan")
        if isinstance(content, dict) and "phases" in content:
            raise InputError(
                f"{where}: a plan of several phases, which `gradsync train` takes: give that of one scheme"
            )
        try:
            plan = _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise InputError(f"{where}: not a plan: {first_problem(error, Plan)}") from None
        if plan.version != VERSION:
            raise InputError(f"{where}: plan version {plan.version}; this gradsync reads version {VERSION}: plan again")
        return plan


def _sums(op: Any) -> bool:
    """Whether it sums a message; that of a piece is of a message that has been cut by a reduce-scatter."""
    summed = isinstance(op, Collective) and op.kind in ("all_reduce", "reduce_scatter")
    return summed and not any(ref.mine for ref in op.writes)


def _sums_sparsely(op: Any) -> bool:
    """Whether it sums a sparse message, or else a piece of one."""
    return isinstance(op, Local) and op.postcondition == "sparse_sum" and not any(ref.mine for ref in op.writes)


_ADAPTER = TypeAdapter(Plan)
