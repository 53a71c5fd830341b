"""A model that a plan is attached to stays a model of its own: one plan at a time, its own buffers, plain copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import attached_models as attached
import gradsync
from gradsync.attachment import Attached, RefusedError

CASE = attached.CASES["plain"]
IMAGES, LABELS = attached.sample(0, 0, torch.float32)


@contextmanager
def attaching(model: nn.Module, scheme: str = "mgwfbp") -> Iterator[tuple[Any, torch.optim.Optimizer, Attached]]:
    optimizer = attached.optimizer(model)
    handle = gradsync.attach(model, optimizer, attached.planned(scheme, model, 1))
    yield model, optimizer, handle
    handle.close()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
    optimizer.step()


@pytest.mark.usefixtures("alone")
def test_a_model_is_attached_to_one_plan_at_a_time():
    with attaching(attached.build(CASE)) as (model, optimizer, handle):
        with pytest.raises(RefusedError, match=r"a plan carries this model's gradients already: close\(\) that one"):
            gradsync.attach(model, optimizer, attached.planned("mgwfbp", model, 1))
        handle.close()
        gradsync.attach(model, optimizer, attached.planned("mgwfbp", model, 1)).close()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["mgwfbp", "dear"])
def test_buffers_that_forward_replaces_stay_what_forward_made_of_them(scheme):
    ended = []
    for plan in (None, scheme):
        torch.manual_seed(5)
        model = attached.Scaled()
        optimizer = attached.optimizer(model)
        handle = plan and gradsync.attach(model, optimizer, attached.planned(plan, model, 1))
        for _ in range(4):
            step(model, optimizer)
        if handle:
            handle.close()
        ended.append(attached.state(model))
    for name, value in ended[0].items():
        np.testing.assert_allclose(ended[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.usefixtures("alone")
def test_buffers_of_another_size_are_left_to_the_model():
    with attaching(attached.Scaled()) as (model, optimizer, _):
        step(model, optimizer)
        model.now = torch.ones(1)
        step(model, optimizer)
        model.register_buffer("more", torch.zeros(3))
        step(model, optimizer)
        assert model.now.shape == (16,)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["mgwfbp", "priority"])
def test_a_copy_of_the_model_is_a_model_alone(scheme):
    """As one that averages weights, or that is saved whole."""
    with attaching(attached.build(CASE), scheme) as (model, optimizer, handle):
        step(model, optimizer)
        step(model, optimizer)
        turn = handle.executor.turn
        handle.wait()
        saved = pickle.dumps(model)
        assert b"gradsync" not in saved
        for copied in (copy.deepcopy(model), pickle.loads(saved)):
            nn.functional.cross_entropy(copied(IMAGES), LABELS).backward()
            assert handle.step is None
            assert handle.executor.turn == turn
            assert all(parameter.grad is not None for parameter in copied.parameters())
        step(model, optimizer)
        assert handle.executor.turn == turn + 1
