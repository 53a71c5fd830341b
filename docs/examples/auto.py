"""A plan that is chosen while the model trains: profiled, planned, compared with the starting plan, and kept if faster.

    torchrun --nproc-per-node 2 docs/examples/auto.py [--beside-ddp]

With --beside-ddp the same loop trains a copy with DDP, and the two are compared.
"""

import copy
import logging
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsync
from gradsync.attachment import Auto

STEPS, BATCH, WIDTH = 80, 16, 256


def build() -> nn.Module:
    """The model."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of this rank."""
    random = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(BATCH, WIDTH, generator=random), torch.randint(10, (BATCH,), generator=random)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """The usual loop; the last loss."""
    for step in range(STEPS):
        inputs, labels = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    """Train it."""
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    other = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    attached = gradsync.attach(model, optimizer, Auto(measure_seconds=0.5))

    loss = train(model, optimizer)
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f}", flush=True)
        for event in attached.history:
            print(event, flush=True)
    if "--beside-ddp" in sys.argv:
        train(DistributedDataParallel(other), torch.optim.AdamW(other.parameters(), lr=1e-3))
        if dist.get_rank() == 0:
            pairs = zip(model.parameters(), other.parameters(), strict=True)
            print("equal to DDP:", all(torch.equal(*pair) for pair in pairs), flush=True)


if __name__ == "__main__":
    main()
