"""Updates that are lost when ranks add to shared memory without a lock (Hogwild).

Two additions to an element at the same moment leave one of them. At some elements, spread over the range, each rank
sums up in float64 what it adds; what the memory then lacks of all sums together was lost.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from gradsync.plan import Plan, Ref, SharedAdd
from gradsync.runtime.execute import Executor

WATCHED = 4096  # elements of a range, about


def unlocked(plan: Plan) -> bool:
    """Whether ranks add to shared memory without a lock."""
    return any(isinstance(op, SharedAdd) and not op.locked for role in plan.roles for op in role.flat)


class Watching(Executor):
    """An executor that keeps account of its additions to shared memory; `begin` and `lost` around each run."""

    def begin(self) -> None:
        """Begin the account, while no rank adds anything."""
        self.step = {ref: max(1, (ref.stop - ref.start) // WATCHED) for ref in self._added()}
        self.before = {ref: self._elements(self._view(ref), ref).clone() for ref in self.step}
        self.sums = {ref: torch.zeros(3, len(value), dtype=torch.float64) for ref, value in self.before.items()}

    def lost(self) -> tuple[float, float]:
        """(what was lost, what was added) since then, absolute values over all ranks. Collective.

        What rounding may take of an element is no loss.
        """
        lost = added = 0.0
        for ref, sums in self.sums.items():
            dist.all_reduce(sums)
            total, size, count = sums
            now = self._elements(self._view(ref), ref)
            eps = torch.finfo(self.buffers[ref.buffer].dtype).eps
            rounding = count * eps * torch.maximum(self.before[ref].abs(), now.abs())
            lost += float(((self.before[ref] + total - now).abs() - rounding).clamp(min=0).sum())
            added += float(size.sum())
        return lost, added

    def _added(self) -> list[Ref]:
        return sorted({op.writes[0] for op in self.body if isinstance(op, SharedAdd)})

    def _elements(self, view: torch.Tensor, ref: Ref) -> torch.Tensor:
        return view[:: self.step[ref]].double()

    def _perform(self, op: Any, turn: int) -> int | None:
        source = super()._perform(op, turn)
        if isinstance(op, SharedAdd):
            ref = op.writes[0]
            added = self._elements(self.views[op.name][0][0], ref) * op.scale
            self.sums[ref] += torch.stack([added, added.abs(), torch.ones_like(added)])
        return source
