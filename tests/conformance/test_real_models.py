"""LeNet-5 and a small ResNet under every schedule train like plain torch on the ranks' shards in turn.

Several steps in float64; single steps from equal state in float32, since over many the order of summing is amplified by
batch normalisation. Stock DDP with an exported plan too. Quarters of large models train a few steps, alike under one
message at a time and under two.
"""

import numpy as np
import pytest
import torch

import real_models as real
from gradsync import schedules
from gradsync.check import check
from gradsync.runtime.peers import KINDS

pytestmark = pytest.mark.deep
ENOUGH = {"float64": 1e-9, "float32": 1e-6}


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("schedule", schedules.names())
@pytest.mark.parametrize(("name", "ranks"), real.RANKS)
def test_executed_equals_plain_torch(on_ranks, name, schedule, kind, ranks):
    check(real.plan(schedule, name, ranks))
    for result in on_ranks("real_models", ranks):  # statistics too: rank 0's, on every rank
        assert result[name, schedule, kind].everything < ENOUGH[kind]


@pytest.mark.parametrize(("name", "ranks"), real.RANKS)
def test_stock_ddp_with_an_exported_plan_trains_alike_in_the_plans_buckets(on_ranks, name, ranks):
    plan = real.plan("mgwfbp", name, ranks, "float64")
    size = {layer.name: layer.bytes for layer in real.load(name, "float64").layers}
    wanted = [sum(size[tensor] for tensor in message) for message in plan.messages()]
    for result in on_ranks("real_models", ranks):
        assert result[name, "ddp", "float64"].parameters < ENOUGH["float64"]
        assert result[name, "ddp", "buckets"] == wanted


@pytest.mark.parametrize("peer", ["zero", "fsdp2", "fsdp2_kept"])
@pytest.mark.parametrize(("name", "ranks"), real.RANKS)
def test_other_peers_train_alike(on_ranks, name, peer, ranks):
    first, *others = on_ranks("real_models", ranks)
    assert first[name, peer, "float64"].everything < ENOUGH["float64"]  # statistics too: rank 0's own
    for result in others:
        assert result[name, peer, "float64"].parameters < ENOUGH["float64"]


@pytest.mark.parametrize("schedule", real.AT_ONCE)
@pytest.mark.parametrize("name", real.QUARTERS)
def test_a_quarter_of_a_large_model_equals_oracle_plain_torch_and_peers(on_ranks, name, schedule):
    first, *others = on_ranks("quarter_models", real.QUARTER_RANKS)
    wanted = first[name, schedule]
    assert max(wanted["oracle"], wanted["reference"]) < ENOUGH["float64"]
    assert bool(wanted["statistics"]) == (name == "densenet201_quarter")
    for result in (first, *others):
        distances = result[name, schedule]
        farthest_peer = max(distances[peer] for peer in KINDS)
        assert farthest_peer < ENOUGH["float64"] < 1e-3 < distances["start"]
        assert distances["statistics"].keys() == wanted["statistics"].keys()
        assert all(np.array_equal(value, wanted["statistics"][key]) for key, value in distances["statistics"].items())


@pytest.mark.parametrize("name", real.QUARTERS)
def test_messages_of_a_quarter_travel_one_at_a_time_or_two_at_once(name):
    lanes = []
    for schedule in real.AT_ONCE:
        plan = real.plan(schedule, name, real.QUARTER_RANKS, cost=real.SHARED)
        check(plan)
        (role,) = plan.roles
        sent = [op for op in role.body if op.name.startswith("message")]
        assert 2 < len(sent) < len(plan.tensors)
        lanes.append(len({op.lane for op in sent}))
    assert lanes == [1, 2]


def test_training_moves_the_parameters():
    before, after = real.trained(real.build("resnet8")), real.reference("resnet8", 2, real.TURNS, torch.float64)
    assert before.keys() == after.keys()
    assert max(np.abs(before[key] - after[key]).max() for key in after) > 1e-2


def test_schedules_are_told_apart():
    for name in real.NAMES:
        plans = {tuple(map(tuple, real.plan(schedule, name, 2).messages())) for schedule in schedules.names()}
        assert len(plans) >= 3
