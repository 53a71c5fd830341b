"""The executor of devices that queue their work, on a processor that keeps account of queues, marks and waits."""

from typing import Any

import pytest
import torch
from torch import nn

import real_models as real
import small_model
import tiny_plans as tiny
from gradsync import schedules, updates
from gradsync.collectives import NATIVE
from gradsync.errors import InputError, RunError
from gradsync.plan import COMPUTE, Plan
from gradsync.runtime.compute import ModelCompute, bind, bind_statistics
from gradsync.runtime.enqueue import Enqueuer, prepare, refuse
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.transforms.step import Step
from queued_device import QueuedProcessor, before

pytestmark = pytest.mark.usefixtures("alone")
TURNS = 4


def computing(executor: Executor) -> ModelCompute:
    """ResNet-8, which has batch-norm statistics that a plan broadcasts."""
    model = real.build("resnet8", torch.float32)
    bind(model, executor.plan, executor.buffers["parameter"])
    bind_statistics(model, executor.buffers["statistics"])

    def sample(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return real.sample("resnet8", 0, number, torch.float32)

    return ModelCompute(real.forward(model, 0), sample, passes=executor.plan.passes)


def trained(executor: Executor) -> ModelCompute:
    compute = computing(executor)
    executor.run(TURNS, compute)
    compute.settle()
    return compute


def planned(schedule: str, **step: Any) -> Plan:
    load = real.load("resnet8")
    chosen = schedules.messages(schedule, load, real.COST, real.options(schedule, "resnet8"))
    return updates.plan("ssgd", schedule, load, chosen, 1, optimizer=real.OPTIMIZER, step=Step(**step))


PLANS = {
    **{name: planned(name) for name in schedules.names()},
    "narrow": planned("wfbp", wire="float16"),
    "two lanes": small_model.two_lanes(planned("wfbp")),
    "micro-batches": planned("mgwfbp", accumulate=3, clip_norm=0.1),
}


def out_of_order(executor: Enqueuer) -> list[str]:
    """Waits of the plan that are kept by no mark, wait or queue."""
    ends = {(op.name, turn): end for op, turn, _, end in executor.stamped}
    missing = []
    for op, turn, start, end in executor.stamped:
        began = end if op.verb == "ready" else start  # a gradient begins when the one before has ended
        for names, wanted in ((op.after, turn), (op.after_previous, turn - 1)):
            missing += [
                f"{op.name} after {name}"
                for name in names
                if (name, wanted) in ends and not before(ends[name, wanted], began)
            ]
    return missing


@pytest.mark.parametrize("name", PLANS)
def test_it_trains_as_the_executor_of_processors_does(name):
    one, other = Executor(PLANS[name], 0, Groups()), prepare(PLANS[name], 0, Groups(QueuedProcessor()))
    assert isinstance(other, Enqueuer)
    losses = trained(one).losses
    assert trained(other).losses == losses
    assert len(set(losses)) == TURNS
    for buffer in ("parameter", "momentum", "statistics"):
        assert torch.equal(one.buffers[buffer], other.buffers[buffer])


@pytest.mark.parametrize("name", PLANS)
def test_every_wait_of_the_plan_is_a_queues_a_marks_or_a_wait(name):
    executor = Enqueuer(PLANS[name], 0, Groups(QueuedProcessor()))
    trained(executor)
    assert out_of_order(executor) == []
    lanes = {op.lane for op in PLANS[name].roles[0].flat} - {COMPUTE}
    assert len(executor.device.known) == 1 + len(lanes)


def test_an_executor_that_does_not_wait_is_found_out(monkeypatch):
    executor = Enqueuer(PLANS["two lanes"], 0, Groups(QueuedProcessor()))
    monkeypatch.setattr(Enqueuer, "wait_for", lambda *_: None)
    trained(executor)
    missing = out_of_order(executor)
    assert "message3 after ready:" in " ".join(missing)
    assert "update after message0" in missing
    assert "forward after update" not in missing  # one queue


@pytest.mark.parametrize("name", PLANS)
def test_operations_are_launched_in_the_plans_order(name):
    executor = Enqueuer(PLANS[name], 0, Groups(QueuedProcessor()))
    trained(executor)
    order = [op.name for op in PLANS[name].roles[0].flat]
    for turn in range(TURNS):
        assert [op.name for op, at, _, _ in executor.stamped if at == turn] == order


def test_the_trace_is_that_of_an_executor():
    one, other = Executor(PLANS["mgwfbp"], 0, Groups()), Enqueuer(PLANS["mgwfbp"], 0, Groups(QueuedProcessor()))
    trained(one)
    trained(other)
    what = [{span[:5] + span[7:] for span in executor.trace().spans} for executor in (one, other)]
    assert what[0] == what[1]
    for executor in (one, other):
        trace = executor.trace()
        assert len(executor.ends) == TURNS
        assert all(span.end >= span.start for span in trace.spans)
        # on one clock, every turn's update, its last operation, ends after the turn before and not after its own
        update = [span.end for span in trace.spans if span.operation == "update"]
        assert len(update) == TURNS
        for earlier, ended, own in zip([0.0, *executor.ends], update, executor.ends, strict=False):
            assert earlier - 1e-6 <= ended <= own + 1e-6
        assert trace.computation_seconds() > 0


def test_runs_go_on_where_the_last_one_ended():
    whole, parts = (Enqueuer(PLANS["two lanes"], 0, Groups(QueuedProcessor())) for _ in range(2))
    trained(whole)
    compute = computing(parts)
    for turns in (1, TURNS - 1):
        parts.run(turns, compute)
    assert parts.turn == TURNS
    assert {span.turn for span in parts.spans} == set(range(TURNS))
    assert torch.equal(whole.buffers["parameter"], parts.buffers["parameter"])


def test_what_is_not_recorded_waits_once_for_each_lane_and_makes_no_other_marks():
    executor = Enqueuer(PLANS["two lanes"], 0, Groups(QueuedProcessor()))
    compute = computing(executor)
    waits, marks = [], []
    wait, mark = executor.device.wait, executor.device.mark
    executor.device.wait = lambda mark: (waits.append(mark), wait(mark))
    executor.device.mark = lambda: (marks.append(mark()), marks[-1])[1]
    executor.run(1, compute, record=False)
    (role,) = executor.plan.roles
    lane = {op.name: op.lane for op in role.flat}
    needed = sum(len({lane[name] for name in op.after} - {op.lane}) for op in role.flat)
    begin, end = 1, 1  # of the run
    assert len(waits) == needed + len(executor.queues)  # each queue first waits for the beginning
    assert len(marks) == begin + end + len(executor.watched)
    assert len(executor.watched) < len(role.flat) - 1
    assert executor.spans == []


def test_a_dropped_out_layer_is_a_zero_gradient_and_its_message_leaves():
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_model.build()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net[6](self.net[:6](x).detach())  # nothing before the last layer learns

    names = [name for name, _ in small_model.build().named_parameters()]
    renamed = {name: f"net.{name}" for name in names}
    plan = Plan.from_json(_renamed(small_model.plan("wfbp", 1).to_json(), renamed))
    executor = Enqueuer(plan, 0, Groups(QueuedProcessor()))
    model = Half()
    bind(model, plan, executor.buffers["parameter"])
    first = executor.buffers["parameter"].clone()
    executor.run(2, ModelCompute(small_model.forward(model, 0), lambda turn: small_model.sample(0, turn)))
    moved = {
        tensor.name
        for tensor in plan.tensors
        if (executor.buffers["parameter"] - first)[tensor.start : tensor.stop].abs().max() > 0
    }
    assert moved == {"net.6.weight", "net.6.bias"}
    assert out_of_order(executor) == []


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"').replace(f'"ready:{old}"', f'"ready:{new}"')
    return text


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (small_model.plan("wfbp", 2, "ring"), r"'message0' is the collective 'ring'.*only native"),
        (tiny.async_server(1), r"can't be executed on --device cuda.*take --device cpu"),
        (tiny.hogwild(2), r"can't be executed on --device cuda"),
    ],
)
def test_a_plan_with_transfers_between_two_ranks_is_refused(plan, wanted):
    with pytest.raises(InputError, match=wanted):
        refuse(plan)
    refuse(small_model.plan("wfbp", 2, NATIVE))


def test_a_failing_operation_is_named_with_rank_turn_and_lane(monkeypatch):
    executor = Enqueuer(PLANS["wfbp"], 0, Groups(QueuedProcessor()))

    def fails(*_, **__):
        raise RuntimeError("NCCL error: remote process exited\nmore")

    monkeypatch.setattr("torch.distributed.all_reduce", fails)
    with pytest.raises(RunError, match=r"rank 0, turn 0, collective 'message0', lane '.*': NCCL error: remote process"):
        trained(executor)
