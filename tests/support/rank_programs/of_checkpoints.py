"""Training that is broken off and resumed."""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.distributed as dist

import tiny_plans as tiny
from changed_plans import bases
from gradsync.plan import PASSING, Plan
from gradsync.runtime.compute import Forward
from gradsync.runtime.contenders import Planned
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.replay import Replayed
from low_rank_plans import low_rank
from tiny_workloads import workload

RESUMED_TURNS = 7


def resumed(rank: int, ranks: int) -> dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str]]]:
    """Plan -> (buffers that last after turns without a break, after a checkpoint in between, those saved for all)."""
    plans = {
        "alike": bases.with_momentum(tiny.synchronous(ranks)),
        "sharded": bases.sharded_model(ranks),
        "shards": bases.with_shards(bases.sharded_model(ranks)),
        "sparse": bases.with_momentum(tiny.sparse(ranks)),
        "signs": bases.compressed("mgwfbp", "allgather_sparse", ranks, compressor="sign"),
        "levels": bases.compressed("mgwfbp", "allgather_sparse", ranks, compressor="qsgd"),
        "factors": low_rank(ranks, "wfbp"),
        "elastic": tiny.easgd_round_robin(ranks - 1),
    }
    ended_of = {}
    for name, plan in plans.items():
        groups = Groups()
        whole = _planned(plan, rank, groups)
        whole.run(RESUMED_TURNS)
        broken = _planned(plan, rank, groups)
        broken.run(RESUMED_TURNS // 2)
        alike, of_rank = copy.deepcopy(broken.state())
        checkpoint = [alike]
        dist.broadcast_object_list(checkpoint, 0)  # as a checkpoint: rank 0's for all
        again = _planned(plan, rank, groups)
        again.restore(checkpoint[0], of_rank)
        again.run(RESUMED_TURNS - RESUMED_TURNS // 2)
        kept = [buffer.name for buffer in plan.buffers if buffer.role not in PASSING]
        ended = [{key: each.executor.buffers[key].numpy().copy() for key in kept} for each in (whole, again)]
        ended_of[name] = ended[0], ended[1], [key for key in alike if key in kept]
        groups.close()
    return ended_of


def _planned(plan: Plan, rank: int, groups: Groups) -> Planned:
    sizes = [4 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    model = Replayed(workload(sizes, [0.0] * len(sizes)), pace=0.0)
    forward = Forward(model, lambda loss, labels: loss, rank)

    def sample(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.from_numpy(np.random.default_rng((rank, number)).normal(size=5))
        return images, torch.zeros(1)

    return Planned(plan, forward, sample, groups, Pool())
