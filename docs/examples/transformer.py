"""A small BERT of the library transformers, from a configuration that is made here: nothing is downloaded.

    torchrun --nproc-per-node 2 docs/examples/transformer.py [--beside-ddp]

The scheme gathers the sums of gradients beside the next forward, and so its plan updates the parameters itself, as the
optimizer says: AdamW. With --beside-ddp the same loop trains a copy with DDP, and the two are compared.
"""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsync
from gradsync.runtime.torchvision_operators import torchvision

torchvision()  # transformers imports it, and stops at a torchvision of another build of torch
from transformers import BertConfig, BertForMaskedLM  # noqa: E402

STEPS, BATCH, TOKENS = 10, 2, 12
CONFIG = BertConfig(
    vocab_size=200,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def batch(step: int) -> dict[str, torch.Tensor]:
    """The samples of this rank, as the model takes them by name."""
    random = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    tokens = torch.randint(CONFIG.vocab_size, (BATCH, TOKENS), generator=random)
    return {"input_ids": tokens, "labels": tokens}


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """The usual loop, with a learning rate that falls; the last loss."""
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch(step)).loss
        loss.backward()
        optimizer.step()
        slower.step()
    return loss.item()


def main() -> None:
    """Train it."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = BertForMaskedLM(CONFIG)
    other = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

    attached = gradsync.attach(model, optimizer, "dear", inputs=batch(0))

    loss = train(model, optimizer)
    attached.wait()  # for the last step: forward, state_dict() and close() do it, too
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f}", flush=True)
    if "--beside-ddp" in sys.argv:
        optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3, weight_decay=0.01)
        train(DistributedDataParallel(other), optimizer)
        if dist.get_rank() == 0:
            pairs = zip(model.parameters(), other.parameters(), strict=True)
            print("close to DDP:", all(torch.allclose(*pair, rtol=1e-3, atol=2e-5) for pair in pairs), flush=True)


if __name__ == "__main__":
    main()
