"""Stock PyTorch DDP as a contender, with torch's own optimizer, on the same ranks and samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from gradsync.configuration.peers import MIB, Peer, bucket_cap_mb_list
from gradsync.plan import Plan
from gradsync.runtime.compute import FIRST_LOSS_SCALE, Forward, Sample
from gradsync.runtime.contenders import Contender
from gradsync.runtime.group import Groups, settle
from gradsync.runtime.losses import Losses

SWEEP_MIB = (1.0, 4.0, 16.0, 25.0, 64.0)
SWEEP_TURNS = 4  # the first is not timed
POWERSGD_START = 2  # turns with plain all-reduce before; the least that DDP takes with a warm start


class StockDDP(Contender):
    """DDP as `peer` says, on the device of `groups`; `plans` are those of the launch, by name. Collective.

    A turn has `accumulate` micro-batches; gradients are clipped to `clip_norm` (None: they are not).
    """

    def __init__(
        self,
        peer: Peer,
        forward: Forward,
        sample: Sample,
        plans: dict[str, Plan],
        groups: Groups | None = None,
        *,
        lr: float,
        momentum: float,
        statistics: bool = True,
        accumulate: int = 1,
        clip_norm: float | None = None,
    ):
        self.name, self.peer, self.sample = peer.name, peer, sample
        self.accumulate, self.clip_norm = accumulate, clip_norm
        self.model = forward.model
        groups = groups or Groups()
        self.device, group = groups.device, groups.stock()
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
            forward_sync_buffers=statistics,
            **options,
        )
        self.forward = Forward(self.ddp, forward.loss, forward.rank, forward.seed, forward.precision)
        self.power: powerSGD_hook.PowerSGDState | None = None
        if peer.hook == "powersgd":
            self.power = powerSGD_hook.PowerSGDState(
                group, matrix_approximation_rank=1, start_powerSGD_iter=POWERSGD_START
            )
            self.ddp.register_comm_hook(self.power, powerSGD_hook.powerSGD_hook)
        elif peer.hook:
            hook = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}[peer.hook]
            self.ddp.register_comm_hook(group, hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=lr, momentum=momentum)
        self.scaler = torch.amp.GradScaler(
            self.device.kind, init_scale=FIRST_LOSS_SCALE, enabled=forward.precision == "float16"
        )
        self._losses = Losses(
            *(forward.rank, self.name),
            scaled=self.scaler.is_enabled(),
            queued=self.device.queued,
            passes=accumulate,
        )
        self.losses = self._losses.values
        self.turn = 0

    def run(self, turns: int) -> list[float]:
        """Train one block."""
        self.device.synchronize()
        ends = []
        for turn in range(self.turn, self.turn + turns):
            self.optimizer.zero_grad(set_to_none=True)
            for part in range(self.accumulate):
                # nothing is sent before the last micro-batch
                with nullcontext() if part == self.accumulate - 1 else self.ddp.no_sync():
                    self._pass(turn, turn * self.accumulate + part)
            if self.clip_norm is not None:
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.ddp.parameters(), self.clip_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            ends.append(self.device.mark())
        settle(self.device)
        self._losses.read()
        self.turn += turns
        return self.device.instants(ends)

    def _pass(self, turn: int, number: int) -> None:
        images, labels = self.sample(number)
        loss = self.forward(number, images, labels)
        self.scaler.scale(loss / self.accumulate if self.accumulate > 1 else loss).backward()
        self._losses.take(turn, loss)

    def buckets(self) -> list[int]:
        """Bytes of each bucket, once DDP has seen the order of the gradients."""
        logged = self.ddp._get_ddp_logging_data()
        sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
        return [int(size) for size in str(sizes).split(",")]

    def parameters(self) -> dict[str, torch.Tensor]:
        """The model's own parameters, flattened."""
        return {name: parameter.detach().reshape(-1) for name, parameter in self.model.named_parameters()}

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters, momentum and loss scale are alike; the errors that PowerSGD feeds back are each rank's own."""
        alike = {
            "turn": self.turn,
            "parameters": dict(self.model.named_parameters()),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        own: dict[str, Any] = {"buffers": dict(self.model.named_buffers())}
        if self.power is not None:
            own["power"] = {
                "iter": self.power.iter,
                **{key: dict(getattr(self.power, key)) for key in _POWER_TENSORS},
            }
        return alike, own

    def restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """Copy the state into the model that DDP wraps."""
        # DDP finds its buckets in its first turns, and what PowerSGD feeds back is kept by bucket
        self.run(POWERSGD_START)
        self.losses.clear()
        self.turn = alike["turn"]
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(alike["parameters"][name])
            for name, buffer in self.model.named_buffers():
                buffer.copy_(own["buffers"][name])
        self.optimizer.load_state_dict(alike["optimizer"])
        self.scaler.load_state_dict(alike["scaler"])
        if self.power is not None:
            self.power.iter = own["power"]["iter"]
            for key in _POWER_TENSORS:
                kept = {name: value.to(self.device.torch_device) for name, value in own["power"][key].items()}
                getattr(self.power, key).update(kept)


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
