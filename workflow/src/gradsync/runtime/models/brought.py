"""A model of one's own in a launch: it computes on the batch that it brings, and its output is its loss.

The loss of a batch is weighted by the noise that stands in for the batch's images (`data: synthetic`), so that the
gradients of ranks and iterations differ and a sum that is lost shows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.runtime.models import own
from gradsync.runtime.peers.blocks import shared

if TYPE_CHECKING:
    from gradsync.configuration.peers import Peer

WEIGHT = 0.1  # of the noise, beside 1


class _Brought(nn.Module):
    """What the class of the module is made of besides."""

    _brought: own.Own

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The weighted loss of the batch; floating-point inputs take the type of the images.  # (batch, 1, 1, 1)"""
        brought = self._brought
        output = own.called(super().forward, _like(brought.inputs, images))
        return brought.loss(output).reshape(()) * (1 + WEIGHT * images.mean())


def build(name: str) -> nn.Module:
    """The module, made with torch's generator as it is; names of parameters and submodules stay.

    Raises InputError for one whose class can't be extended.
    """
    given = own.load(name, seed=None)
    kind = type(given.module)
    try:
        given.module.__class__ = type(kind.__name__, (_Brought, kind), {})
    except TypeError as error:
        raise InputError(f"--model {name}: a {kind.__name__} can't be trained here: {error}") from None
    given.module._brought = given._replace(module=nn.Identity())  # type: ignore[assignment]  # it is no part of itself
    return given.module.train()


def refuse(name: str, peers: Sequence[Peer]) -> None:
    """Raises InputError for a model that a launch can't train: copies of it, or one of these peers, would not learn."""
    model = build(name)
    with own.told(name, "a copy of its module raised"):
        copied = copy.deepcopy(model)
        copied(torch.zeros(1, 1, 1, 1)).backward()
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise InputError(
            f"--model {name}: the loss computes with the module itself, and a launch trains copies of it: let the loss "
            "depend on the output alone"
        )
    unused = [key for key, each in copied.named_parameters() if each.requires_grad and each.grad is None]
    for peer in peers:
        if unused:
            raise InputError(
                f"--peer {peer.name}: parameter {unused[0]!r} of {name} gets no gradient, and PyTorch waits for one: "
                "leave peers out, or freeze it (requires_grad_(False))"
            )
        if peer.kind == "fsdp2" and (place := shared(model)):
            raise InputError(
                f"--peer {peer.name}: {place!r} of {name} is shared between blocks, and FSDP2 shards them apart: leave "
                "it out"
            )


def computes_in_float64(model: nn.Module) -> bool:
    """Whether the module and its loss compute in float64; what a launch does not bring in does."""
    if not isinstance(model, _Brought):
        return True
    copied = copy.deepcopy(model).double()
    try:
        with torch.random.fork_rng():
            copied(torch.zeros(1, 1, 1, 1, dtype=torch.float64)).backward()
    except Exception:  # whatever the user's code raises
        return False
    return True


def _like(inputs: Any, images: torch.Tensor) -> Any:
    """The inputs where the images are, and numbers with a fraction in the images' type."""
    if isinstance(inputs, torch.Tensor):
        return inputs.to(images.device, images.dtype if inputs.is_floating_point() else inputs.dtype)
    if isinstance(inputs, dict):
        return {key: _like(value, images) for key, value in inputs.items()}
    return type(inputs)(_like(value, images) for value in inputs) if isinstance(inputs, tuple | list) else inputs
