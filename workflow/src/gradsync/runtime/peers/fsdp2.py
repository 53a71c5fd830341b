"""FSDP2: each rank holds its part of parameters, gradients and momentum, and gathers a block's when it is computed.

Source: `torch.distributed.fsdp.fully_shard`; Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data
Parallel", VLDB 2023. It is used as one would use it: on each block of the model and on the whole of it. A block's
parameters are gathered before its forward, dropped after it unless they are kept for backward, and its gradients are
scattered behind its backward.

FSDP2 leaves buffers alone. So that all contenders do the same, rank 0's statistics of batch normalisation are broadcast
before the first forward of a turn, as DDP does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from gradsync.configuration.peers import MIB
from gradsync.plan import Plan
from gradsync.runtime.peers.stock import Stock, local
from gradsync.runtime.sharded_blocks import blocks

BUFFERS_MIB = 250  # of a broadcast of buffers: DDP's


class FullyShard(Stock):
    """`fully_shard` on the blocks of the model, and on the model."""

    def _wrapped(self, plans: dict[str, Plan]) -> nn.Module:
        # rank 0 evaluates alone: with the sharded model all ranks would have to, in step
        self.copied = copy.deepcopy(self.model) if self.rank == 0 else None
        mesh = DeviceMesh.from_group(self.group, self.device.kind)
        self.units = [*blocks(self.model), self.model]
        self.unit_bytes = _unit_bytes(self.units)
        for unit in self.units[:-1]:
            fully_shard(unit, mesh=mesh, reshard_after_forward=self.peer.reshard_after_forward)
        # as by default, the whole keeps its own parameters: its backward follows its forward at once
        fully_shard(self.model, mesh=mesh, reshard_after_forward=False)
        return self.model

    def _unsent(self) -> AbstractContextManager[object]:
        return _unsent(cast(FSDPModule, self.wrapped))

    def _begin(self) -> None:
        buffers = list(self.model.buffers())
        if self.statistics and buffers:
            dist._broadcast_coalesced(self.group, buffers, BUFFERS_MIB * MIB, 0)

    def parameters(self) -> dict[str, torch.Tensor]:
        """The whole parameters, gathered. Collective."""
        named = self.model.named_parameters()
        return {name: _whole(parameter).reshape(-1) for name, parameter in named if parameter.requires_grad}

    def whole(self) -> nn.Module | None:
        """On rank 0 a model that is not sharded, with what this one has learnt. Collective."""
        parameters = self.parameters()
        if self.copied is None:
            return None
        with torch.no_grad():
            for name, parameter in self.copied.named_parameters():
                if name in parameters:  # others have not learnt
                    parameter.copy_(parameters[name].view_as(parameter))
            for buffer, learnt in zip(self.copied.buffers(), self.model.buffers(), strict=True):
                buffer.copy_(learnt)
        return self.copied

    def details(self) -> dict[str, Any]:
        """Bytes of the parameters of each unit, which are gathered together; the last is what is in no block."""
        return {"unit_bytes": self.unit_bytes}

    def _kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Each rank has its parts of parameters, and of what the optimizer keeps of them."""
        named = dict(self.model.named_parameters())
        states = {
            name: {key: local(value) for key, value in self.optimizer.state[parameter].items() if value is not None}
            for name, parameter in named.items()
        }
        return {}, {"parameters": {name: local(each.detach()) for name, each in named.items()}, "optimizer": states}

    def _restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        for name, parameter in self.model.named_parameters():
            local(parameter.detach()).copy_(own["parameters"][name])
            for key, value in own["optimizer"][name].items():
                kept = torch.zeros_like(parameter) if value.dim() else value.clone()  # how many steps: on all ranks
                local(kept).copy_(value)
                self.optimizer.state[parameter][key] = kept


@contextmanager
def _unsent(model: FSDPModule) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    return cast(DTensor, parameter.detach()).full_tensor()


def _unit_bytes(units: list[nn.Module]) -> list[int]:
    """Of the parameters of each unit that are in none before it."""
    seen: set[int] = set()
    sizes = []
    for unit in units:
        new = {id(parameter): parameter for parameter in unit.parameters() if id(parameter) not in seen}
        seen |= new.keys()
        sizes.append(sum(parameter.numel() * parameter.element_size() for parameter in new.values()))
    return sizes
