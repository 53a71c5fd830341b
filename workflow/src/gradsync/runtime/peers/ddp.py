"""Stock PyTorch DDP as a contender, with torch's own optimizer, on the same ranks and samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradsync.configuration.peers import MIB, bucket_cap_mb_list
from gradsync.plan import Plan
from gradsync.runtime.peers.stock import Stock

if TYPE_CHECKING:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

SWEEP_MIB = (1.0, 4.0, 16.0, 25.0, 64.0)
SWEEP_TURNS = 4  # the first is not timed
POWERSGD_START = 2  # turns with plain all-reduce before; the least that DDP takes with a warm start


class StockDDP(Stock):
    """DDP as its peer says."""

    def _wrapped(self, plans: dict[str, Plan]) -> torch.nn.Module:
        peer, group = self.peer, self.group
        options: dict[str, Any] = {}
        if peer.plan:
            options["bucket_cap_mb_list"] = bucket_cap_mb_list(plans[peer.plan])
        elif peer.hook == "powersgd":
            # its all-reduces are chained by callbacks, which Gloo runs in any order once there are several buckets:
            # ranks then meet with different messages
            options["bucket_cap_mb"] = max(1.0, 2 * _bytes(self.model) / MIB)
        elif peer.bucket_mib is not None:
            options["bucket_cap_mb"] = peer.bucket_mib
        self.ddp = DistributedDataParallel(
            self.model,
            device_ids=None if self.device.index is None else [self.device.index],
            process_group=group,
            gradient_as_bucket_view=peer.gradient_as_bucket_view,
            forward_sync_buffers=self.statistics,
            **options,
        )
        self.power: PowerSGDState | None = None
        if peer.hook == "powersgd":
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

            self.power = powerSGD_hook.PowerSGDState(
                group, matrix_approximation_rank=1, start_powerSGD_iter=POWERSGD_START
            )
            self.ddp.register_comm_hook(self.power, powerSGD_hook.powerSGD_hook)
        elif peer.hook:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            hook = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}[peer.hook]
            self.ddp.register_comm_hook(group, hook)
        return self.ddp

    def _unsent(self) -> AbstractContextManager[object]:
        return self.ddp.no_sync()

    def details(self) -> dict[str, Any]:
        """The bytes of its buckets."""
        return {"bucket_bytes": self.buckets()}

    def buckets(self) -> list[int]:
        """Bytes of each bucket, once DDP has seen the order of the gradients."""
        logged = self.ddp._get_ddp_logging_data()
        sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
        return [int(size) for size in str(sizes).split(",")]

    def _kept(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters and momentum are alike; the errors that PowerSGD feeds back are each rank's own."""
        alike = {"parameters": dict(self.model.named_parameters()), "optimizer": self.optimizer.state_dict()}
        if self.power is None:
            return alike, {}
        fed_back = {key: dict(getattr(self.power, key)) for key in _POWER_TENSORS}
        return alike, {"power": {"iter": self.power.iter, **fed_back}}

    def _rehearse(self) -> None:
        # DDP finds its buckets in its first turns, and what PowerSGD feeds back is kept by bucket
        self.run(POWERSGD_START)

    def _restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(alike["parameters"][name])
        self._restore_optimizer(alike, own)
        if self.power is not None:
            self.power.iter = own["power"]["iter"]
            for key in _POWER_TENSORS:
                kept = {name: value.to(self.device.torch_device) for name, value in own["power"][key].items()}
                getattr(self.power, key).update(kept)

    def _restore_optimizer(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(alike["optimizer"])


def _bytes(model: torch.nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


_POWER_TENSORS = ("error_dict", "p_memory_dict", "q_memory_dict")


def best_bucket_mib(
    model: torch.nn.Module, make: Callable[[torch.nn.Module, float], StockDDP], *, steady: bool = False
) -> float:
    """The bucket size of `SWEEP_MIB` with which DDP is fastest on rank 0; all ranks get the same. Collective.

    `make` gives a contender on a copy of the model. Sizes take turns twice, there and back, or once for `steady` times.
    """
    total = _bytes(model)
    # more than the model is one bucket, whatever the size
    sizes = [size for i, size in enumerate(SWEEP_MIB) if not i or SWEEP_MIB[i - 1] * MIB < total]
    seconds: dict[float, list[float]] = {size: [] for size in sizes}
    for order in (sizes,) if steady else (sizes, sizes[::-1]):
        for size in order:
            ends = make(copy.deepcopy(model), size).run(SWEEP_TURNS)
            seconds[size] += np.diff(ends[1:]).tolist()
    best = torch.tensor([min(sizes, key=lambda size: float(np.median(seconds[size])))])
    dist.broadcast(best, 0)
    return float(best)
