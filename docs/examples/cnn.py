"""A small CNN with batch normalisation on random images.

    torchrun --nproc-per-node 2 docs/examples/cnn.py [--beside-ddp]

With --beside-ddp the same loop trains a copy with DDP, and the two are compared.
"""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsync

STEPS, BATCH = 20, 8


def build() -> nn.Module:
    """The model."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of this rank."""
    random = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(BATCH, 3, 16, 16, generator=random), torch.randint(10, (BATCH,), generator=random)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """The usual loop; the last loss."""
    for step in range(STEPS):
        images, labels = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    """Train it."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    gradsync.attach(model, optimizer, "mgwfbp", inputs=batch(0)[0])

    loss = train(model, optimizer)
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f}", flush=True)
    if "--beside-ddp" in sys.argv:
        optimizer = torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9)
        train(DistributedDataParallel(other), optimizer)
        if dist.get_rank() == 0:
            pairs = zip(model.parameters(), other.parameters(), strict=True)
            print("equal to DDP:", all(torch.equal(*pair) for pair in pairs), flush=True)


if __name__ == "__main__":
    main()
