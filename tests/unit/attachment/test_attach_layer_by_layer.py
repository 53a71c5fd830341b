"""Plans that hold back the forward of single layers: no module computes before its parameters were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import attached_models as attached
import gradsync
from gradsync.attachment import Attached, RefusedError
from gradsync.errors import RunError

IMAGES, LABELS = attached.sample(0, 0, torch.float32)


class Checkpointed(attached.Net):
    """Its linear layers are computed again in backward."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(images)).flatten(1)
        for layer in (self.body, self.again, self.twice):
            x = torch.tanh(checkpoint(layer, x, use_reentrant=self.reentrant))
        return self.head(x)


class WithATeacher(attached.Net):
    """It runs once without gradients first."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            super().forward(images)
        return super().forward(images)


@contextmanager
def attaching(model: nn.Module, scheme: str, **options: Any) -> Iterator[tuple[torch.optim.Optimizer, Attached]]:
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, attached.planned(scheme, model, 1), **options)
    yield optimizer, handle
    handle.close()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
    optimizer.step()


def early(model: nn.Module, handle: Attached) -> tuple[list[str], list[str]]:
    """(modules that began before their parameters were asked for, all that began), in calls from now on."""
    too_early: list[str] = []
    begun: list[str] = []

    def watched(name: str, module: nn.Module) -> None:
        places = [handle.place[f"{name}.{key}"] for key, _ in module.named_parameters(recurse=False)]

        def begins(*_: Any) -> None:
            begun.append(name)
            turn = handle.executor.turn
            names = [handle.needs[place] for place in places]
            waited = all(handle.executor.finished[other] >= turn - 1 for op in names for other in op.after_previous)
            if handle.step is None:
                # between two steps nothing is asked for: what the last one does must be done
                if not waited:
                    too_early.append(name)
            elif max(places) >= handle.asked:
                too_early.append(name)

        module.register_forward_pre_hook(begins)

    for name, module in model.named_modules():
        if any(True for _ in module.named_parameters(recurse=False)):
            watched(name, module)
    return too_early, begun


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", attached.UPDATING)
@pytest.mark.parametrize(
    "make",
    [
        lambda: attached.build(attached.CASES["plain"]),
        lambda: Checkpointed(reentrant=False),
        lambda: Checkpointed(reentrant=True),
        WithATeacher,
    ],
    ids=["plain", "checkpoints", "reentrant checkpoints", "without gradients first"],
)
def test_every_layer_waits_for_its_parameters_in_every_pass(make, scheme):
    torch.manual_seed(5)
    model = make()
    with attaching(model, scheme) as (optimizer, handle):
        too_early, begun = early(model, handle)
        for _ in range(4):
            step(model, optimizer)
            with torch.no_grad():
                model.head(torch.ones(1, 16))  # a part of it, by itself
        assert too_early == []
        assert {*begun} == {"conv", "body", "again", "twice", "head"}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["priority", "pipelined"])
def test_a_branch_that_the_first_pass_does_not_take_waits_too(scheme):
    model = attached.build(attached.CASES["unused"])
    model.passes = 1  # the next pass leaves it out
    with attaching(model, scheme, find_unused_parameters=True) as (optimizer, handle):
        too_early, begun = early(model, handle)
        for _ in range(4):
            step(model, optimizer)
        assert too_early == []
        assert "sometimes" in begun


@pytest.mark.usefixtures("alone")
def test_a_state_is_not_loaded_into_an_iteration_that_a_forward_has_begun():
    model = attached.build(attached.CASES["plain"])
    with attaching(model, "dear") as (optimizer, handle):
        step(model, optimizer)
        state = handle.state_dict()
        model(IMAGES)
        with pytest.raises(RunError, match=r"load_state_dict\(\) after a forward without its backward"):
            handle.load_state_dict(state)
        step(model, optimizer)
        handle.load_state_dict(state)
        step(model, optimizer)
    model = attached.build(attached.CASES["plain"])
    with attaching(model, "mgwfbp") as (optimizer, handle):  # which keeps nothing
        step(model, optimizer)
        state = handle.state_dict()
        model(IMAGES)
        handle.load_state_dict(state)
        step(model, optimizer)


@pytest.mark.usefixtures("alone")
def test_a_module_that_is_compiled_in_place_hides_its_layers():
    model = attached.build(attached.CASES["plain"])
    plan = attached.planned("priority", model, 1)
    model.body.compile(backend="eager")
    with pytest.raises(RefusedError, match="which a compiled module hides"):
        gradsync.attach(model, attached.optimizer(model), plan)


@pytest.mark.usefixtures("alone")
def test_adams_decoupled_decay_is_not_the_plans():
    model = attached.build(attached.CASES["plain"])
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=0.01, decoupled_weight_decay=True)
    with pytest.raises(RefusedError, match="decoupled_weight_decay=True"):
        gradsync.attach(model, optimizer, "priority", inputs=IMAGES, all_reduce="a=1e-4,b=1e-8")
