"""Plans that hold back the forward of single layers, executed with a model whose hooks ask for them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import small_model
from gradsync.check import check
from gradsync.errors import RunError
from gradsync.plan import Buffer, Local, Need, Plan, Ready, Ref, Role, Tensor
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime.compute import Forward, ModelCompute, _Layers, bind
from gradsync.runtime.enqueue import Enqueuer
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.kernels import EXECUTED
from gradsync.runtime.replay import Replayed
from gradsync.transforms.accumulation import accumulate
from queued_device import QueuedProcessor
from waiting import HANGS_SECONDS

pytestmark = pytest.mark.usefixtures("alone")
TURNS = 4
WHOLE = small_model.plan("wfbp", 1)
FORWARD = [tensor.name for tensor in WHOLE.tensors[::-1]]


def held(plan: Plan, order: Sequence[str] = FORWARD, own: bool = False) -> Plan:
    """The plan with a need for each layer, in this order; with `own`, each waits for an update of its layer alone.

    Those updates have a lane of their own.
    """
    (role,) = plan.roles
    body: list = []
    for op in role.body:
        if isinstance(op, Need):
            for name in order:
                place = _place("parameter", plan.tensor[name])
                need = dataclasses.replace(op, name=f"{op.name}:{name}", layer=name, reads=(place,))
                body.append(dataclasses.replace(need, after_previous=(f"update:{name}",)) if own else need)
        elif own and isinstance(op, Local) and op.kernel == "sgd":
            for tensor in plan.tensors[::-1]:
                places = [tuple(_place(ref.buffer, tensor) for ref in refs) for refs in (op.reads, op.writes)]
                update = dataclasses.replace(op, name=f"update:{tensor.name}", lane="update", reads=places[0])
                body.append(dataclasses.replace(update, writes=places[1]))
        else:
            body.append(op)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(body)),))


def _place(buffer: str, tensor: Tensor) -> Ref:
    return Ref(buffer, tensor.start, tensor.stop)


PLANS = {
    "by layer": (held(WHOLE), WHOLE),
    "updates of their own": (held(WHOLE, own=True), WHOLE),
    "another order": (held(WHOLE, FORWARD[3:] + FORWARD[:3], own=True), WHOLE),
    "backwards": (held(WHOLE, FORWARD[::-1]), WHOLE),
    "micro-batches": (accumulate(held(WHOLE), 3), accumulate(WHOLE, 3)),
}


def prepared(executor: Executor) -> ModelCompute:
    model = small_model.build()
    bind(model, executor.plan, executor.buffers["parameter"])
    return ModelCompute(
        small_model.forward(model, 0), lambda number: small_model.sample(0, number), passes=executor.plan.passes
    )


def trained(plan: Plan, kind: type[Executor] = Executor, turns: int = TURNS) -> tuple[torch.Tensor, list[float]]:
    executor = kind(plan, 0, Groups() if kind is Executor else Groups(QueuedProcessor()), dtype=torch.float64)
    compute = prepared(executor)
    executor.run(turns, compute)
    compute.settle()
    compute.close()
    return executor.buffers["parameter"], compute.losses


@pytest.mark.parametrize("kind", [Executor, Enqueuer])
@pytest.mark.parametrize("name", PLANS)
def test_it_trains_as_when_forward_is_held_back_as_a_whole(name, kind):
    plan, whole = PLANS[name]
    check(plan)
    parameters, losses = trained(plan, kind)
    expected, expected_losses = trained(whole)
    assert losses == expected_losses
    assert torch.equal(parameters, expected)
    assert len(set(losses)) == TURNS


@pytest.mark.parametrize("name", ["by layer", "another order", "micro-batches"])
def test_the_trace_has_a_forward_of_each_layer_in_the_plans_order(name):
    plan, _ = PLANS[name]
    executor = Executor(plan, 0, Groups(), dtype=torch.float64)
    executor.run(2, prepared(executor))
    needs = [op.name for op in plan.roles[0].flat if isinstance(op, Need)]
    assert len(needs) == plan.passes * len(FORWARD)
    for turn in range(2):
        assert [span.operation for span in executor.spans if span.verb == "need" and span.turn == turn] == needs


def test_forward_runs_while_later_layers_wait(monkeypatch):
    """An update of the last layer begins only when the first layer's next forward has begun."""
    executor = Executor(held(WHOLE, own=True), 0, Groups(), dtype=torch.float64)
    compute = prepared(executor)
    first, passes, began, came = compute.forward.model[0], [], threading.Condition(), []

    def begins(module: nn.Module, _: object) -> None:
        if module is first:  # copies of the model have the hook too
            with began:
                passes.append(module)
                began.notify_all()

    first.register_forward_pre_hook(begins)
    gradient = executor.views["update:6.weight"][0][0].data_ptr()
    update = EXECUTED["sgd"]

    def late(reads: list[torch.Tensor], *others: list[torch.Tensor], **arguments: float) -> None:
        turn = len(came)
        if reads[0].data_ptr() == gradient and turn < TURNS - 1:
            with began:
                came.append(began.wait_for(lambda: len(passes) > turn + 1, HANGS_SECONDS))
        update(reads, *others, **arguments)

    monkeypatch.setitem(EXECUTED, "sgd", late)
    executor.run(TURNS, compute)
    assert came == [True] * (TURNS - 1)
    monkeypatch.undo()
    assert torch.equal(executor.buffers["parameter"], trained(WHOLE)[0])


def test_a_model_that_is_evaluated_between_runs_asks_for_nothing():
    executor = Executor(held(WHOLE), 0, Groups(), dtype=torch.float64)
    compute = prepared(executor)
    for _ in range(TURNS):
        executor.run(1, compute)
        with torch.no_grad():
            compute.forward.model(small_model.sample(0, 0)[0])
    assert torch.equal(executor.buffers["parameter"], trained(WHOLE)[0])


@pytest.mark.parametrize(("plan", "hooks"), [(WHOLE, 0), (held(WHOLE), 4)], ids=["whole", "by layer"])
def test_only_a_plan_with_needs_of_layers_sets_hooks_on_modules_and_they_are_taken_off(plan, hooks):
    executor = Executor(plan, 0, Groups(), dtype=torch.float64)
    compute = prepared(executor)
    executor.run(1, compute)

    def there() -> int:
        return sum(len(module._forward_pre_hooks) for module in compute.forward.model.modules())

    assert there() == hooks
    compute.close()
    assert there() == 0


class Skipping(nn.Sequential):
    """Leaves its last layer out from its third forward on."""

    forwards = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        *layers, last = self
        for layer in layers:
            x = layer(x)
        return last(x) if self.forwards < 3 else x[:, : small_model.CLASSES]


def test_a_layer_that_the_model_leaves_out_is_named():
    executor = Executor(held(WHOLE), 0, Groups(), dtype=torch.float64)
    model = Skipping(*small_model.build())
    bind(model, executor.plan, executor.buffers["parameter"])
    compute = ModelCompute(small_model.forward(model, 0), lambda number: small_model.sample(0, number))
    with pytest.raises(RunError, match=r"rank 0, turn 2: the model never asked for 6\.weight"):
        executor.run(TURNS, compute)


# Replayed workloads


def replayed() -> Workload:
    """Forward takes its layers in another order than the reverse of that of backward."""
    layers = [("head.weight", 2), ("body.bias", 0), ("body.weight", 1)]
    return Workload(
        name="toy",
        forward_seconds=0.0,
        layers=tuple(Layer(name=name, bytes=8, backward_seconds=0.0, forward_index=index) for name, index in layers),
    )


def plan_of(workload: Workload, needs: Sequence[str | None]) -> Plan:
    tensors = tuple(Tensor(layer.name, 2 * i, 2 * i + 2) for i, layer in enumerate(workload.layers))
    whole = {name: Ref(name, 0, tensors[-1].stop) for name in ("parameter", "gradient")}
    places = {tensor.name: _place("parameter", tensor) for tensor in tensors} | {None: whole["parameter"]}
    body = (
        *(
            Need(name=f"forward:{name}", layer=name, reads=(places[name],), after_previous=("update",))
            for name in needs
        ),
        *(
            Ready(
                name=f"ready:{tensor.name}",
                tensor=tensor.name,
                reads=(_place("parameter", tensor),),
                writes=(_place("gradient", tensor),),
            )
            for tensor in tensors
        ),
        Local(
            name="update",
            lane="update",
            kernel="sgd",
            after=(f"ready:{tensors[-1].name}",),
            arguments={"lr": 0.5},
            reads=(whole["gradient"],),
            writes=(whole["parameter"],),
        ),
    )
    buffers = tuple(Buffer(name, ref.stop, role=name) for name, ref in whole.items())
    return Plan(name="toy", ranks=1, tensors=tensors, buffers=buffers, roles=(Role("worker", (0,), body),))


def test_a_replayed_workload_asks_layer_by_layer():
    ended = []
    for needs in (["body.bias", "body.weight", "head.weight"], [None]):
        executor = Executor(plan_of(replayed(), needs), 0, Groups())
        model = Replayed(replayed())
        bind(model, executor.plan, executor.buffers["parameter"])
        forward = Forward(model, lambda output, _: output, 0)
        compute = ModelCompute(forward, lambda number: (torch.full((2, 1, 1, 1), 3.0 + number), torch.zeros(2)))
        executor.run(TURNS, compute)
        assert sum(span.verb == "need" for span in executor.spans) == TURNS * len(needs)
        ended.append((executor.buffers["parameter"], compute.losses))
    assert torch.equal(ended[0][0], ended[1][0])
    assert ended[0][1] == ended[1][1]


def test_layers_are_asked_for_with_all_that_the_plan_has_before_them_and_waits_are_told(monkeypatch):
    """The model needs body.bias, body.weight, head.weight; the plan has head.weight before body.weight."""
    asked: list[str] = []
    held_at: list[list[str]] = []

    def need(layer: str) -> bool:
        asked.append(layer)
        return layer != "body.bias"

    model = Replayed(replayed())
    monkeypatch.setattr(model, "hold", lambda: held_at.append(list(asked)))
    step = SimpleNamespace(needs=dict.fromkeys(["body.bias", "head.weight", "body.weight"]), need=need)
    samples = torch.ones(2, 1, 1, 1)
    layers = _Layers(Forward(model, lambda output, _: output, 0), step, 0, samples, torch.zeros(2))
    for _ in range(2):
        asked.clear()
        held_at.clear()
        layers.begin(step)
        model(samples)
        layers.end()
        assert asked == ["body.bias", "head.weight", "body.weight"]
        assert held_at == [asked]  # body.bias was there
    model(samples)
    assert len(asked) == 3
