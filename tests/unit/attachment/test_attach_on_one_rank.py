"""`gradsync.attach` on one rank: what it refuses, and what a loop may do between two steps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import attached_models as attached
import gradsync
from gradsync.attachment import Attached, RefusedError, planning
from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.errors import InputError, RunError
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.runtime.devices import PROCESSOR
from gradsync.runtime.enqueue import Enqueuer
from gradsync.transforms.accumulation import accumulate
from gradsync.transforms.clipping import clip
from gradsync.transforms.loss_scaling import scale_loss
from gradsync.transforms.messages_alone import by_parts, messages_alone
from queued_device import QueuedProcessor
from waiting import HANGS_SECONDS

CASE = attached.CASES["plain"]
IMAGES, LABELS = attached.sample(0, 0, torch.float32)


@contextmanager
def attaching(scheme: str = "mgwfbp", **options: Any) -> Iterator[tuple[attached.Net, torch.optim.Optimizer, Attached]]:
    model = attached.build(CASE)
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, attached.planned(scheme, model, 1), **options)
    yield model, optimizer, handle
    handle.close()


def loss_of(model: nn.Module) -> torch.Tensor:
    return nn.functional.cross_entropy(model(IMAGES), LABELS)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def plan_of(model: nn.Module, scheme: str = "mgwfbp", ranks: int = 1) -> Plan:
    return attached.planned(scheme, model, ranks)


def renamed(plan: Plan) -> Plan:
    first, *_ = plan.tensors
    return Plan.from_json(plan.to_json().replace(f'"{first.name}"', '"stranger"'))


def layered(scheme: str = "priority") -> Plan:
    return plan_of(attached.build(CASE), scheme)


FROZEN = attached.CASES["frozen"]
REFUSED = {
    "ranks": (lambda model: plan_of(model, ranks=2), r"is for 2 rank\(s\), 1 are running"),
    "a tensor that is not there": (
        lambda model: renamed(plan_of(model)),
        r"has a tensor 'stranger', and the model has",
    ),
    "micro-batches": (lambda model: accumulate(plan_of(model), 2), r"2 micro-batches in a step: .* use no_sync\(\)"),
    "clipping": (lambda model: clip(plan_of(model), 1.0), r"use clip_grad_norm_ before the optimizer"),
    "a loss scale": (lambda model: scale_loss(plan_of(model)), r"has a loss scale of its own: .* torch's GradScaler"),
    "a loss scale by pieces": (lambda model: scale_loss(plan_of(model, "pipelined")), r"has a loss scale of its own"),
    "a method of its own": (lambda model: "easgd", r"'easgd' applies no mean gradient|scheme 'easgd' does not exist"),
    "no such file": (lambda model: "nowhere/plan.json", r"nowhere/plan\.json"),
    "no such scheme": (lambda model: "mgwfpb", r"to plan 'mgwfpb' for this model, give workload= "),
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_does_not_fit_is_refused(name, capsys):
    make, message = REFUSED[name]
    model = attached.build(CASE)
    options = {"inputs": IMAGES, "all_reduce": "a=1e-4,b=1e-8"} if name == "a method of its own" else {}
    with pytest.raises(RefusedError, match=message) as refused:
        gradsync.attach(model, attached.optimizer(model), make(model), **options)
    assert refused.value.code == 2
    assert isinstance(refused.value, InputError)
    assert capsys.readouterr().err.count("gradsync: error: ") == 1


@pytest.mark.usefixtures("alone")
def test_a_model_that_does_not_fit_is_refused_by_the_tensors_name():
    model = attached.build(CASE)
    plan = plan_of(model)

    def refused(other: nn.Module, message: str) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(RefusedError, match=message):
            gradsync.attach(other, optimizer, plan)

    refused(attached.build(FROZEN), r"has a tensor 'again\.weight', and the model's is frozen")
    refused(attached.build(attached.CASES["tied"]), r"has a tensor 'twice\.weight', and the model has it under another")
    refused(attached.build(attached.CASES["unused"]), r"has no tensor 'sometimes\.weight', which the model trains")
    refused(attached.build(attached.CASES["float64"]), r"sums gradients in float32, and '.*' is torch\.float64")
    wider = attached.build(CASE)
    wider.head = nn.Linear(16, 9)
    refused(wider, r"'head\.bias' has 5 elements, the model's has 9")
    refused(nn.Sequential(nn.ReLU()), "no parameter that requires a gradient")
    mixed = attached.build(CASE)
    mixed.head.double()
    refused(mixed, r"'conv\.weight' is torch\.float32, 'head\.weight' torch\.float64: plans sum gradients of one type")
    refused(nn.Linear(3, 0), "parameter 'weight' has no elements")


@pytest.mark.usefixtures("alone")
def test_transfers_are_refused_on_a_device_that_queues_before_anything_is_sent(monkeypatch):
    monkeypatch.setattr("gradsync.attachment.start._device", lambda _: QueuedProcessor())
    model = attached.build(CASE)
    with pytest.raises(RefusedError, match=r"on --device cuda only native is executed"):
        gradsync.attach(model, attached.optimizer(model), plan_of(model, "ring"))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: torch.optim.Adam(p, lr=0.05), r"by SGD, and the optimizer is Adam"),
        (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.01), r"momentum=0\.9, .* momentum=0\.8"),
        (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True), r"nesterov=False"),
        (
            lambda p: torch.optim.SGD(p[1:], lr=0.05, momentum=0.9, weight_decay=0.01),
            r"not have parameter 'conv\.weight'",
        ),
    ],
)
def test_a_plan_that_updates_parameters_itself_needs_its_own_optimizer(make, message):
    model = attached.build(CASE)
    with pytest.raises(RefusedError, match=message):
        gradsync.attach(model, make(list(model.parameters())), plan_of(model, "priority"))


@pytest.mark.usefixtures("alone")
def test_gradients_that_the_plan_applies_itself_can_not_be_read():
    with attaching("priority") as (model, optimizer, _):
        loss_of(model).backward()
        with pytest.raises(RefusedError, match="applies gradients itself"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert model.head.weight.grad is None


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["priority", "pipelined"])
def test_a_plan_that_updates_parameters_itself_may_clip_itself(scheme):
    model, reference = attached.build(CASE), attached.build(CASE)
    optimizer, plain = attached.optimizer(model), attached.optimizer(reference)
    handle = gradsync.attach(model, optimizer, clip(plan_of(model, scheme), 0.05))
    for _ in range(3):
        step(model, optimizer)
        plain.zero_grad()
        loss_of(reference).backward()
        assert nn.utils.clip_grad_norm_(reference.parameters(), 0.05) > 0.1
        plain.step()
    handle.close()
    for name, value in attached.state(reference).items():
        torch.testing.assert_close(torch.from_numpy(attached.state(model)[name]), torch.from_numpy(value))


def scaled_steps(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    """Four, of which the second overflows."""
    for number in range(4):
        optimizer.zero_grad()
        scaler.scale(loss_of(model) * (torch.inf if number == 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["priority", "dear", "pipelined"])
@pytest.mark.parametrize("device", [PROCESSOR, QueuedProcessor()])
@pytest.mark.parametrize("of_the_plan", [False, True])
def test_a_grad_scaler_moves_the_scale_of_a_plan_that_updates_parameters_itself(
    scheme, device, of_the_plan, monkeypatch
):
    """Whether the plan was made with a loss scale or not."""
    monkeypatch.setattr("gradsync.attachment.start._device", lambda _: device)
    model, reference = attached.build(CASE), attached.build(CASE)
    optimizer, plain = attached.optimizer(model), attached.optimizer(reference)
    scaler, other = (torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=2) for _ in range(2))
    plan = plan_of(model, scheme)
    handle = gradsync.attach(model, optimizer, scale_loss(plan) if of_the_plan else plan, scaler=scaler)
    scaled_steps(model, optimizer, scaler)
    scaled_steps(reference, plain, other)
    assert scaler.state_dict() == other.state_dict()
    assert scaler.get_scale() == 512.0  # halved once, doubled once
    handle.close()
    for name, value in attached.state(reference).items():
        torch.testing.assert_close(torch.from_numpy(attached.state(model)[name]), torch.from_numpy(value))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("scheme", "enabled"), [("mgwfbp", True), ("dear", False)])
def test_a_scaler_changes_no_plan_if_it_is_off_or_torchs_optimizer_applies_gradients(scheme, enabled):
    reference = attached.build(CASE)
    scaled_steps(reference, attached.optimizer(reference), torch.amp.GradScaler("cpu", enabled=True))
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    with attaching(scheme, scaler=scaler) as (model, optimizer, handle):
        assert handle.plan.holding("scaler") is None
        if enabled:
            scaled_steps(model, optimizer, scaler)
            expected = attached.state(reference)
            assert all((attached.state(model)[name] == value).all() for name, value in expected.items())


@pytest.mark.usefixtures("alone")
def test_a_plan_that_cannot_have_a_loss_scale_is_refused_with_a_scaler():
    model = attached.build(CASE)
    kept = Scheme(name="kept", schedule="wfbp", update="by_message", compressor="exact_topk")
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    plan = schemes.plan(kept, attached.workload_of(model), attached.COST, 1, optimizer="sgd", **settings)
    with pytest.raises(RefusedError, match="loss scaling needs a plan without residuals"):
        gradsync.attach(model, attached.optimizer(model), plan, scaler=torch.amp.GradScaler("cpu"))


@pytest.mark.usefixtures("alone")
def test_a_step_of_a_plan_that_updates_itself_can_not_be_left_out_nor_its_rate_be_late():
    with attaching("dear") as (model, optimizer, _):
        step(model, optimizer)
        loss_of(model).backward()
        with pytest.raises(RefusedError, match=r"optimizer\.step\(\) was not called"):
            loss_of(model)
        optimizer.param_groups[0]["lr"] = 0.01
        with pytest.raises(RefusedError, match=r"0\.05; it was set to 0\.01 before the step: set it after"):
            optimizer.step()


@pytest.mark.usefixtures("alone")
def test_parameters_without_a_gradient_are_named():
    model = attached.build(attached.CASES["unused"])
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, plan_of(model))
    loss_of(model).backward()
    with pytest.raises(RefusedError, match=r"2 parameter\(s\) had no gradient .* 'never\.weight' first: .*find_unused"):
        optimizer.step()
    with pytest.raises(RefusedError, match=r"had no gradient in the last backward"):
        loss_of(model)
    handle.close()


@pytest.mark.usefixtures("alone")
def test_a_backward_that_broke_off_is_not_taken_for_a_step():
    with attaching("wfbp") as (model, _, handle):
        hook = model.conv.weight.register_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss_of(model).backward()
        hook.remove()
        with pytest.raises(RunError, match=r"iteration 0: backward broke off after \d+ of 8 gradients"):
            loss_of(model)
        with pytest.raises(RunError, match="in the middle of a backward pass"):
            handle.state_dict()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["mgwfbp", "priority"])
def test_evaluation_and_state_dict_between_steps_change_nothing(scheme):
    ended = []
    for disturbed in (False, True):
        with attaching(scheme) as (model, optimizer, _):
            for _ in range(4):
                step(model, optimizer)
                if disturbed:
                    model.eval()
                    with torch.no_grad():
                        model(IMAGES)
                    model.train()
                    model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})
            ended.append(attached.state(model))
    assert all((ended[0][name] == value).all() for name, value in ended[1].items())


@pytest.mark.usefixtures("alone")
def test_two_forwards_may_come_before_a_backward_and_one_gradient_may_not_come_twice():
    with attaching() as (model, optimizer, _):
        (loss_of(model) + loss_of(model)).backward()
        optimizer.step()
        loss = model.head(torch.ones(1, 16)).sum()
        loss.backward(retain_graph=True)
        with pytest.raises(RefusedError, match=r"the gradient of 'head\.\w+' came twice .* in no_sync\(\)"):
            loss.backward()


@pytest.mark.deep
@pytest.mark.usefixtures("alone")
def test_a_compiled_module_is_attached_unless_its_layers_are_held_back():
    model = attached.build(CASE)
    optimizer, compiled = attached.optimizer(model), torch.compile(model, backend="eager")
    with pytest.raises(RefusedError, match="which a compiled module hides"):
        gradsync.attach(compiled, optimizer, plan_of(model, "priority"))
    before = attached.state(model)
    handle = gradsync.attach(compiled, optimizer, plan_of(model))
    step(compiled, optimizer)
    handle.close()
    reference = attached.build(CASE)
    step(reference, attached.optimizer(reference))
    after = attached.state(model)
    assert all((after[name] == value).all() for name, value in attached.state(reference).items())
    assert any((after[name] != value).any() for name, value in before.items())


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["mgwfbp", "priority"])
def test_a_device_that_queues_its_work_trains_alike(scheme, monkeypatch):
    ended = []
    for device in (PROCESSOR, QueuedProcessor()):
        monkeypatch.setattr("gradsync.attachment.start._device", lambda _, chosen=device: chosen)
        with attaching(scheme) as (model, optimizer, handle):
            assert isinstance(handle.executor, Enqueuer) == device.queued
            for _ in range(4):
                step(model, optimizer)
            ended.append(attached.state(model))
    assert all((ended[0][name] == value).all() for name, value in ended[1].items())


@pytest.mark.usefixtures("alone")
def test_what_a_sparse_message_leaves_out_is_kept_for_the_next_one_and_for_a_checkpoint():
    reference = attached.build(CASE)
    loss_of(reference).backward()
    with attaching("exact_topk") as (model, _, handle):
        loss_of(model).backward()
        (residual,) = handle.state_dict()["buffers"].values()
        for name, parameter in model.named_parameters():
            tensor = handle.plan.tensor[name]
            kept = residual[tensor.start : tensor.stop].view(parameter.shape)
            torch.testing.assert_close(parameter.grad + kept, reference.get_parameter(name).grad)
        assert 0 < sum(int(each.grad.count_nonzero()) for each in model.parameters()) < len(residual) / 10


@pytest.mark.usefixtures("alone")
def test_a_scheme_is_planned_from_a_workload_that_was_measured(tmp_path):
    model = attached.build(CASE)
    workload = tmp_path / "workload.json"
    names = [(name, parameter.numel()) for name, parameter in model.named_parameters()]
    layers = [{"name": name, "bytes": 4 * count, "backward_seconds": 1e-3} for name, count in names[::-1]]
    workload.write_text(Workload(name="net", forward_seconds=1e-3, layers=layers).model_dump_json())
    handle = gradsync.attach(model, attached.optimizer(model), "wfbp", workload=workload, all_reduce="a=1e-4,b=1e-8")
    assert handle.plan.messages() == [[name] for name, _ in names[::-1]]
    handle.close()


def test_messages_alone_leave_out_what_an_optimizer_keeps():
    model = attached.build(attached.CASES["statistics"])
    plan = attached.planned("mgwfbp", model, 4)
    alone = messages_alone(plan)
    assert [(buffer.name, buffer.role) for buffer in alone.plan.buffers] == [
        ("gradient", "gradient"),
        ("statistics", "statistics"),
    ]
    assert (alone.sums, alone.weight) == ("gradient", 0.25)
    assert alone.plan.messages() == plan.messages()
    assert not by_parts(plan)
    assert by_parts(layered())
    assert by_parts(layered("pipelined"))


def test_importing_gradsync_imports_no_torch_and_no_rank_means_status_2():
    """A plan is attached in a launch; a program that does not catch what is refused ends as commands do."""
    program = (
        "import sys, gradsync; assert 'torch' not in sys.modules; import torch; m = torch.nn.Linear(2, 2); "
        "gradsync.attach(m, torch.optim.SGD(m.parameters(), lr=1.0), 'wfbp')"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("gradsync: error: attach: this is no rank of a launch")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("local", "topology"), [("2", "dense_gpu:4,2"), (None, "dense_gpu:2,4"), ("1", "dense_gpu:8,1")]
)
def test_a_scheme_made_for_nodes_has_those_of_the_launch(monkeypatch, local, topology):
    """As torchrun tells them; without a word nodes are as even as can be."""
    monkeypatch.setattr(planning.dist, "get_world_size", lambda: 8)
    if local is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert planning.scheme_of("native_by_level").topology == topology
