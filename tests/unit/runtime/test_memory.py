"""What a launch will hold is counted before it is made, and refused in one line if it is too much."""

from types import SimpleNamespace

import psutil
import pytest

import tiny_workloads as tiny
from gradsync import optimizers, schedules
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.runtime import memory
from gradsync.runtime.devices import PROCESSOR
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.updates import sharded as by_piece
from gradsync.updates import ssgd

ELEMENTS = 1000


def plan(momentum, ranks=2, name="sgd"):
    workload = tiny.workload([4 * 400, 4 * 600], [1.0, 1.0])
    chosen = schedules.messages("wfbp", workload, Linear(1.0, 1.0), {})
    optimizer = optimizers.get(name, lr=0.1, **({"momentum": momentum} if name == "sgd" else {}))
    return ssgd.plan("wfbp", workload, chosen, ranks, optimizer=optimizer)


def need(plans, peers=0.0, references=False, conformance=0, width=4):
    return memory.needed(ELEMENTS, plans, peers, references=references, conformance=conformance, width=width)


def test_what_ranks_have_shards_of_is_counted_once_over_all_of_them():
    sizes = [4 * 401, 4 * 599]
    load = tiny.workload(sizes, [1.0, 1.0])
    messages = schedules.messages("wfbp", load, Linear(1.0, 1.0), {})
    adam = optimizers.get("adam")
    for ranks in (2, 4):
        replicated, sharded = (update.plan("own", load, messages, ranks, optimizer=adam) for update in (ssgd, by_piece))
        assert replicated.most_bytes("momentum") == 2 * sum(sizes)
        pieces = [sharded.bytes_of_rank(rank, "momentum") for rank in range(ranks)]
        assert sum(pieces) == 2 * sum(sizes)
        assert max(pieces) == sharded.most_bytes("momentum") <= 2 * (sum(sizes) / ranks + 4 * len(sizes))
        assert need([replicated]).plans - need([sharded]).plans == 2 * sum(sizes) - max(pieces)
        # who trains for itself has all of it
        assert need([sharded], references=True).plans - need([sharded]).plans == 3 * sum(sizes)


@pytest.mark.usefixtures("alone")
def test_a_plan_holds_what_an_executor_allocates():
    for momentum in (0.0, 0.9):
        one = plan(momentum, ranks=1)
        buffers = Executor(one, 0, Groups()).buffers.values()
        assert need([one]).plans == sum(buffer.numel() * buffer.element_size() for buffer in buffers)


def test_plans_share_gradients_and_stock_ddp_shares_nothing():
    size = 4 * ELEMENTS
    assert need([plan(0.9)]).plans == 3 * size  # parameters, momentum, gradients
    assert need([plan(0.9)] * 3).plans == (3 * 2 + 1) * size
    assert (
        need([plan(0.9)] * 3, references=True).plans == (4 * 2 + 1) * size
    )  # and the contender that doesn't communicate
    assert need([], peers=2 * memory.of_peer("ddp", 2)).stock == 2 * (memory.STOCK + 1) * size


def test_peers_that_shard_hold_less_the_more_ranks_there_are():
    for ranks in (1, 2, 64):
        assert memory.of_peer("ddp", ranks) >= memory.of_peer("zero", ranks) >= memory.of_peer("fsdp2", ranks)
    assert memory.of_peer("zero", 4) == 3.25
    assert memory.of_peer("fsdp2", 4) == 1.75


def test_two_moments_of_each_parameter_are_counted():
    size = 4 * ELEMENTS
    assert need([plan(0.9, name="adam")]).plans == 4 * size  # parameters, both moments, gradients
    assert [memory.of_peer(kind, 4, kept=2) for kind in ("ddp", "zero", "fsdp2")] == [5, 3.5, 2]
    assert [memory.of_peer(kind, 4, kept=0) for kind in ("ddp", "zero", "fsdp2")] == [3, 3, 1.5]


def test_the_oracle_comes_before_the_others_and_on_rank_0():
    wide = need([plan(0.9)], conformance=3, width=8)
    size = 8 * ELEMENTS
    assert wide.against == 3 * size
    gradients = 2 * (3 + 1)  # of 2 ranks: of 3 steps, kept for the next plan, and the last one
    assert wide.oracle == (2 * 3 + gradients + memory.ORACLE) * size
    assert wide.peak(root=True) == wide.against + wide.oracle
    assert wide.peak(root=False) == max(wide.against, wide.plans)


@pytest.mark.parametrize("free", [1e9, 10e9])
def test_too_little_memory_is_refused_with_what_is_needed_and_what_is_free(monkeypatch, free):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    need = memory.Need(plans=2e9, stock=1e9, against=1e9, oracle=4e9)
    if free > 5e9:
        memory.refuse("bert_base", need, 0, PROCESSOR)
        return
    with pytest.raises(InputError) as caught:
        memory.refuse("bert_base", need, 0, PROCESSOR)
    for part in ("model 'bert_base' needs about 5.0 GB", "1.0 GB are free.", "2.0 GB for its plans", "--conformance 0"):
        assert part in str(caught.value)
