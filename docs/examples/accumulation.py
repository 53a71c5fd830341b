"""A loop with micro-batches, mixed precision, a loss scale, clipping and a checkpoint.

    torchrun --nproc-per-node 2 docs/examples/accumulation.py [--beside-ddp]

With --beside-ddp the same loop trains a copy with DDP, and the two are compared.
"""

import contextlib
import copy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsync

STEPS, MICRO_BATCHES, BATCH, INPUTS = 12, 3, 8, 20
NoSync = Callable[[], AbstractContextManager[None]]


def build() -> nn.Module:
    """The model."""
    return nn.Sequential(nn.Linear(INPUTS, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of this rank."""
    random = torch.Generator().manual_seed(1000 * number + dist.get_rank())
    inputs = torch.randn(BATCH, INPUTS, generator=random)
    return inputs, inputs.sum(1, keepdim=True)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, no_sync: NoSync) -> float:
    """Only the last micro-batch of a step is sent; the last loss."""
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(MICRO_BATCHES):
            last = micro == MICRO_BATCHES - 1
            inputs, wanted = batch(MICRO_BATCHES * step + micro)
            with contextlib.nullcontext() if last else no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    outputs = model(inputs)
                loss = nn.functional.mse_loss(outputs.float(), wanted) / MICRO_BATCHES
                scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


def main() -> None:
    """Train it."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    other = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    attached = gradsync.attach(model, optimizer, "optimal", inputs=batch(0)[0], all_reduce="a=1e-4,b=1e-9")

    loss = train(model, optimizer, attached.no_sync)
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "plan": attached.state_dict()}
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f}, checkpoint of {', '.join(checkpoint)}", flush=True)
    if "--beside-ddp" in sys.argv:
        wrapped = DistributedDataParallel(other)
        train(wrapped, torch.optim.Adam(other.parameters(), lr=1e-2), wrapped.no_sync)
        if dist.get_rank() == 0:
            pairs = zip(model.parameters(), other.parameters(), strict=True)
            print("equal to DDP:", all(torch.equal(*pair) for pair in pairs), flush=True)


if __name__ == "__main__":
    main()
