"""A model of one's own in a launch: it computes on the batch that it brings, and its output is its loss.

The loss of a batch is weighted by the noise that stands in for its first image (`data: synthetic`), so that the
gradients of ranks and iterations differ and a sum that is lost shows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.runtime import sharded_blocks
from gradsync.runtime.models import own

if TYPE_CHECKING:
    from gradsync.configuration.peers import Peer

WEIGHT = 0.1  # of the noise, beside 1
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _Brought(nn.Module):
    """What the class of the module is made of besides."""

    brought: own.Own

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The weighted loss of the batch, of which floating-point inputs take the images' type.  # (batch, 1, 1, 1)"""
        loss = self.brought.loss_of(own.called(super().forward, self._inputs(images)))
        return loss.reshape(()) * (1 + WEIGHT * images.flatten()[0])

    def _inputs(self, images: torch.Tensor) -> Any:
        """Copies, as forward may change its inputs; they stay where the images were last."""

        def there(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(images.device)

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(images.dtype if tensor.is_floating_point() else tensor.dtype, copy=True)

        self.brought = self.brought._replace(inputs=own.mapped(self.brought.inputs, there))
        return own.mapped(self.brought.inputs, copied)


def build(name: str) -> nn.Module:
    """The module, made with torch's generator as it is; names of parameters and submodules stay.

    Raises InputError for one that can't be put into a launch.
    """
    given = own.load(name, seed=None)
    module, kind = given.module, type(given.module)
    _refuse_odd(name, given)
    with own.told(name, f"a {kind.__name__} can't be trained here:"):
        module.__class__ = type(kind.__name__, (_Brought, kind), {})
    assert isinstance(module, _Brought)
    module.brought = given._replace(module=nn.Identity())  # it is no part of itself
    module.zero_grad()
    return module.train()


def _refuse_odd(name: str, given: own.Own) -> None:
    """Raises InputError for what a launch would leave out, or not train, without a word."""
    module = given.module
    if "forward" in vars(module) or type(module).__call__ is not nn.Module.__call__:
        raise InputError(
            f"--model {name}: the module is called by a function that was put in place of its class's forward, which a "
            "launch replaces: give the module inside it"
        )
    if any(getattr(module, hooks) for hooks in HOOKS):
        raise InputError(f"--model {name}: the module has hooks on its forward or backward: set them on modules inside")
    if isinstance(given.loss, nn.Module) and any(True for _ in given.loss.parameters()):
        raise InputError(f"--model {name}: the loss has parameters, which are not trained: make it part of the module")
    for key, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise InputError(
                f"--model {name}: parameter {key!r} is of {parameter.dtype}: launches train float32 (--precision "
                "computes in another type)"
            )


def refuse(name: str, peers: Sequence[Peer]) -> None:
    """Raises InputError for a model that a launch can't train: copies of it, or one of these peers, would not learn."""
    model = build(name)
    with own.told(name, "a copy of its module raised"):
        copied = copy.deepcopy(model)
        copied(_image(copied)).backward()
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise InputError(
            f"--model {name}: the loss computes with the module itself, and a launch trains copies of it: let the loss "
            "depend on the output alone"
        )
    unused = [key for key, each in copied.named_parameters() if each.requires_grad and each.grad is None]
    for peer in peers:
        if unused:
            raise InputError(
                f"--peer {peer.name}: parameter {unused[0]!r} of {name} gets no gradient, for which DDP would wait: "
                "leave peers out, or freeze it (requires_grad_(False))"
            )
        if peer.kind == "fsdp2" and (reason := sharded_blocks.refused(model)):
            raise InputError(f"--peer {peer.name}: {reason}: leave it out")


def brings(model: nn.Module) -> bool:
    """Whether a module brings its batch and its loss."""
    return isinstance(model, _Brought)


def computes_in_float64(model: nn.Module) -> bool:
    """Whether a copy of a module that brings its loss, and the loss, compute in float64."""
    copied = copy.deepcopy(model).double()
    try:
        with torch.random.fork_rng():
            copied(_image(copied)).backward()
    except Exception:  # whatever the user's code raises
        return False
    return True


def _image(model: nn.Module) -> torch.Tensor:
    parameter = next(model.parameters())
    return torch.zeros(1, 1, 1, 1, dtype=parameter.dtype, device=parameter.device)
