"""Plans of phases: a training that goes on with another plan once a share of its iterations is done.

Each phase takes over parameters and what the optimizer keeps. What a sparse plan has not sent yet, its *residual*, is
sent by the next plan, so that no gradient is lost:

    carry   the first gradient of the next phase has it added, on each rank its own
    flush   a message of its own has it, before the next phase: a step of the optimizer without a gradient besides

Either way ranks send their residuals by the plan of the next phase, and the sum over all ranks of what was sent is the
sum of their gradients.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.plan import blocks
from gradsync.plan.buffers import CLOSED, PASSING
from gradsync.plan.loop import Plan

VERSION = 1
EXACT = 1e-9  # how far a sum of shares may be from 1
KEY = "phases"  # which a plan of one phase has not
HANDED = ("residual", *PASSING)  # roles of buffers that the next plan doesn't take over as they are

Residual = Literal["flush", "carry"]


@dataclass(frozen=True)
class Phase:
    """A plan, and its share of the epochs."""

    __pydantic_config__ = CLOSED
    share: float
    plan: Plan


@dataclass(frozen=True)
class PhasedPlan:
    """Plans that follow one another in one training, and what becomes of residuals in between."""

    __pydantic_config__ = CLOSED
    name: str
    residual: Residual
    phases: tuple[Phase, ...]
    version: int = VERSION

    @property
    def ranks(self) -> int:
        """The ranks of every phase."""
        return self.phases[0].plan.ranks

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each phase, in order."""
        return tuple(phase.plan for phase in self.phases)

    def refuse(self) -> None:
        """Raises InputError, which names both, if a plan can't take over from the one before, or for wrong shares."""
        refuse_shares(self.shares, f"plan {self.name!r}")
        for before, after in pairwise(self.plans):
            if reason := _differs(before, after, self.residual):
                raise InputError(f"plan {self.name!r}: {after.name!r} can't take over from {before.name!r}: {reason}")

    def switches(self, at: Sequence[float], borders: Sequence[int]) -> tuple[int, ...]:
        """The first turn of each phase but the first (`blocks.switches`)."""
        return blocks.switches(at, borders, f"plan {self.name!r}")

    @property
    def shares(self) -> list[float]:
        """The share of the epochs of each phase."""
        return [phase.share for phase in self.phases]

    def to_json(self) -> str:
        """Canonical JSON; equal plans give equal text."""
        return json.dumps(_ADAPTER.dump_python(self, mode="json"), sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str, where: str = "plan") -> PhasedPlan:
        """Parse and validate; raises InputError that names the place."""
        try:
            phased = _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise InputError(f"{where}: not a plan of phases: {first_problem(error, PhasedPlan)}") from None
        if phased.version != VERSION:
            raise InputError(
                f"{where}: plan of phases, version {phased.version}; this gradsync reads version {VERSION}: plan again"
            )
        phased.refuse()
        return phased


def parsed(text: str, where: str = "plan") -> Plan | PhasedPlan:
    """A plan, of one phase or of several; raises InputError that names the place."""
    content = reading.parse_json(text, f"{where}: not a plan")
    phased = isinstance(content, dict) and KEY in content
    return PhasedPlan.from_json(text, where) if phased else Plan.from_json(text, where)


def refuse_shares(shares: Sequence[float], where: str) -> None:
    """Raises InputError unless there are several shares, all above 0, with the sum 1."""
    if len(shares) < 2:
        raise InputError(f"{where}: {len(shares)} phase(s): a scheme with phases has at least 2")
    for number, share in enumerate(shares, 1):
        if not share > 0:
            raise InputError(f"{where}: phase {number}: share {share:g}: must be above 0")
    if not abs(sum(shares) - 1) <= EXACT:
        raise InputError(f"{where}: the shares of its phases have the sum {sum(shares):g}: it must be 1")


def _differs(before: Plan, after: Plan, residual: Residual) -> str:
    """Why a plan can't take over from another; empty if it can."""
    if before.ranks != after.ranks:
        return f"it is for {after.ranks} ranks, not {before.ranks}"
    if before.tensors != after.tensors:
        return "its tensors are others, or in another order: plan both from the same workload"
    if before.passes != after.passes:
        return f"it has {after.passes} micro-batch(es) a step, not {before.passes}"
    taken = [{each.name: each for each in plan.buffers if each.role not in HANDED} for plan in (before, after)]
    if other := sorted(taken[0].keys() ^ taken[1].keys()):
        return f"only one of them keeps {other[0]!r} from turn to turn"
    for name, buffer in taken[0].items():
        whole = [dataclasses.replace(each, mine=(), ends=()) for each in (buffer, taken[1][name])]
        if whole[0] != whole[1]:
            return f"its {name!r} is another buffer"
        if any(before.shards.held(name, rank) != after.shards.held(name, rank) for rank in range(before.ranks)):
            return f"ranks have other shards of {name!r}, and none are exchanged: take schemes with the same messages"
    if before.holding("residual") is None or not _sums_sparsely(after):
        return ""
    if residual == "flush":
        return "it sends a part of each gradient, and a residual is flushed by a dense message: take residual: carry"
    if after.holding("residual") is None:
        return "it drops what it doesn't send, a residual too: take a scheme with error feedback, or a dense one"
    return ""


def _sums_sparsely(plan: Plan) -> bool:
    return any(getattr(op, "postcondition", None) == "sparse_sum" for role in plan.roles for op in role.flat)


_ADAPTER = TypeAdapter(PhasedPlan)
