"""`gradsync.attach` in a loop of one's own on a GPU, against the same loop without it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import attached_models as attached
import gradsync
from gradsync.attachment import Auto
from gradsync.runtime.devices import Device

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")

STEPS = 8
PLANS = ("wfbp", "mgwfbp", "single", "optimal", *attached.UPDATING)


def trained(model: nn.Module, chosen: torch.optim.Optimizer, device: Device, scaler: Any = None) -> dict[str, Any]:
    """The loop of a user; parameters and buffers at its end. With a `scaler` forward is in float16."""
    dtype = next(model.parameters()).dtype
    for turn in range(STEPS):
        images, labels = (device.put(part) for part in attached.sample(0, turn, dtype))
        chosen.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler is not None):
            loss = nn.functional.cross_entropy(model(images), labels)
        if scaler is None:
            loss.backward()
            chosen.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(chosen)
            scaler.update()
    return {name: value.detach().cpu().numpy().copy() for name, value in model.state_dict().items()}


def beside(device: Device, case: str, plan: Any, *, scaled: bool = False, dtype: torch.dtype = torch.float64) -> float:
    """The largest difference of a parameter or buffer between the loop with `plan` and the loop without."""
    start = attached.build(attached.CASES[case]).to(dtype)
    plan = attached.planned(plan, start, 1) if isinstance(plan, str) else plan
    start = start.to(device.torch_device)
    ends = []
    for each in (None, plan):
        model = copy.deepcopy(start)
        chosen = attached.optimizer(model)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=3) if scaled else None
        given = {} if scaler is None or not attached_updates(each) else {"scaler": scaler}
        handle = None if each is None else gradsync.attach(model, chosen, each, **given)
        ends.append(trained(model, chosen, device, scaler))
        if handle is not None:
            assert handle.executor.turn == STEPS
            handle.close()
    return max(float(np.abs(ends[0][name] - ends[1][name]).max()) for name in ends[0])


def attached_updates(plan: Any) -> bool:
    return getattr(plan, "name", None) in attached.UPDATING


@pytest.mark.parametrize("case", ["float64", "statistics", "frozen", "tied"])
@pytest.mark.parametrize("scheme", PLANS)
def test_a_loop_ends_as_without_a_plan(device, case, scheme):
    assert beside(device, case, scheme) < 1e-9


@pytest.mark.parametrize("scheme", ["mgwfbp", *attached.UPDATING])
def test_mixed_precision_and_torchs_scaler(device, scheme):
    assert beside(device, "plain", scheme, scaled=True, dtype=torch.float32) < 1e-4


def test_a_loop_that_is_to_choose_has_nothing_to_choose_on_one_rank(device):
    assert beside(device, "float64", Auto()) < 1e-9


def test_a_loop_keeps_its_own_precision(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    model = attached.build(attached.CASES["plain"])
    plan = attached.planned("mgwfbp", model, 1)
    model.to(device.torch_device)
    gradsync.attach(model, attached.optimizer(model), plan).close()
    assert torch.backends.cudnn.allow_tf32
