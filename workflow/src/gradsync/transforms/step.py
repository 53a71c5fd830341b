"""What a step of training has besides its update, as one value that callers pass on."""

from __future__ import annotations

from dataclasses import dataclass

from gradsync.plan import Plan
from gradsync.sparse import Compression, Way
from gradsync.transforms.accumulation import accumulate
from gradsync.transforms.by_level import by_level
from gradsync.transforms.clipping import clip
from gradsync.transforms.compression import compress
from gradsync.transforms.loss_scaling import scale_loss
from gradsync.transforms.low_rank import LowRank, factor
from gradsync.transforms.narrow_wire import narrow
from gradsync.transforms.pto import deal
from gradsync.transforms.statistics import broadcast


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step of training has besides its update.

    `wire`: the type that gradients travel in (empty: their own). `loss_scaling` guards float16 computation. With
    `statistics` rank 0's batch-norm statistics are broadcast (DDP's default), else every rank keeps its own. A step has
    `accumulate` micro-batches. `clip_norm`: what the norm of the mean gradient is cut to (None: nothing).
    `compression`: what part of each message travels, on which way (None: all of it). `low_rank`: of which tensors
    factors travel (None: of none). `levels`: the axes over which messages are summed one after the other (None: over
    all ranks at once). With `pto` norms of tensors are dealt to ranks.
    """

    wire: str = ""
    loss_scaling: bool = False
    statistics: bool = True
    accumulate: int = 1
    clip_norm: float | None = None
    compression: Compression | None = None
    low_rank: LowRank | None = None
    levels: Way | None = None
    pto: bool = False

    def added_to(self, plan: Plan, statistics: int) -> Plan:
        """The plan with all of this; `statistics`: elements of the model's batch-norm statistics.

        Raises InputError for what makes no sense, by itself or in this plan.
        """
        plan = accumulate(plan, self.accumulate)
        plan = compress(plan, self.compression) if self.compression else plan
        plan = factor(plan, self.low_rank) if self.low_rank else plan
        plan = narrow(plan, self.wire) if self.wire else plan
        plan = by_level(plan, self.levels) if self.levels else plan
        plan = broadcast(plan, statistics) if self.statistics and statistics else plan
        plan = scale_loss(plan) if self.loss_scaling else plan
        plan = plan if self.clip_norm is None else clip(plan, self.clip_norm)
        return deal(plan) if self.pto else plan
