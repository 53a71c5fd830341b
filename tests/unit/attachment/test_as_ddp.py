"""Stock DDP with the messages of a plan, on one rank: its buckets, its wire, and plans that it can't send."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attached_models as attached
from gradsync.attachment import RefusedError, as_ddp
from gradsync.configuration import schemes
from gradsync.measure.operations import of_model
from gradsync.plan import DTYPE_BYTES, Plan
from gradsync.transforms.accumulation import accumulate

CASE = attached.CASES["plain"]
IMAGES, LABELS = attached.sample(0, 0, torch.float32)
SCHEDULES = {"single": {}, "wfbp": {}, "fixed_buckets": {"bucket_bytes": 2000, "first_bucket_bytes": 2000}}


def planned(model: nn.Module, schedule: str, wire: str = "") -> Plan:
    """The plan of a scheme on one rank, with layers in autograd's order."""
    counted = of_model("net", model, lambda copied: copied(IMAGES), 1e-3)
    layers = {layer.name: layer for layer in counted.layers}
    workload = counted.model_copy(update={"layers": tuple(layers[name] for name in order(model))})
    options = SCHEDULES.get(schedule, {})
    scheme = schemes.discovered()[schedule].model_copy(update={"wire": wire, "options": options})
    return schemes.plan(scheme, workload, attached.COST, 1, optimizer="sgd", lr=0.05)


def order(model: nn.Module) -> list[str]:
    """The names of the parameters in the order in which autograd makes their gradients."""
    names: list[str] = []
    hooks = [
        each.register_post_accumulate_grad_hook(lambda _, name=name: names.append(name))
        for name, each in model.named_parameters()
    ]
    backward(model)
    for hook in hooks:
        hook.remove()
    return names


def backward(model: nn.Module) -> dict[str, torch.Tensor]:
    """The gradients of one pass."""
    model.zero_grad()
    nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
    named = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    return {name: each.grad.clone() for name, each in named.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("wire", ["", "float16"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ddp_sends_the_messages_of_the_plan(schedule, wire, alone, tmp_path):
    """As many bytes in each bucket as in the plan's messages; what comes back was rounded to the wire."""
    model = attached.build(CASE)
    expected = backward(model)
    plan = planned(model, schedule, wire)
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    wrapped = as_ddp(model, file)
    for _ in range(3):
        given = backward(wrapped)
    logged = wrapped._get_ddp_logging_data()
    sizes = [int(size) for size in str(logged["rebuilt_bucket_sizes"] or logged["bucket_sizes"]).split(",")]
    width = DTYPE_BYTES["float32"]  # a bucket is in the gradients' own type, and a hook narrows it
    elements = {tensor.name: tensor.stop - tensor.start for tensor in plan.tensors}
    assert sizes == [width * sum(elements[name] for name in message) for message in plan.messages()]
    for name, gradient in expected.items():
        narrow = getattr(torch, wire) if wire else gradient.dtype
        assert torch.allclose(given[name], gradient.to(narrow).to(gradient.dtype), rtol=1e-6, atol=1e-12), name


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("ring", "collective ring is lost"),
        ("dear", "its sums are reduce-scatters"),
        ("priority", "can't be"),
        ("allgather_sparse", "can't be exported into DDP"),
        ("wfbp in bfloat16", "messages in bfloat16 are lost: DDP's hook for them needs NCCL"),
        ("accumulated", "micro-batches"),
        ("of another model", "the model has none"),
    ],
)
def test_what_ddp_cannot_send_is_refused_by_name(schedule, words, alone):
    model = attached.build(CASE)
    plain = " " in schedule or schedule == "accumulated"
    plan = planned(model, "wfbp" if plain else schedule, "bfloat16" if "bfloat16" in schedule else "")
    if schedule == "accumulated":
        plan = accumulate(plan, 2)
    if schedule == "of another model":
        model = nn.Linear(3, 3)
    with pytest.raises(RefusedError, match=words):
        as_ddp(model, plan)
